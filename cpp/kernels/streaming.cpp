// STREAM (McCalpin) and the finite-element streaming tests BS1 to BS5 (Chalmers and Warburton
// 2020): operations on the elements of up to four arrays of one length.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/streaming.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

#include "core/kernel.hpp"
#include "kernels/streaming-inl.hpp"

#if MEMKERN_TARGET_EXISTS
HWY_BEFORE_NAMESPACE();
namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE {
namespace {

// clang-format off
constexpr Entry kEntries[] = {
    MEMKERN_STORE("stream.copy", 2, Copy)
    MEMKERN_STORE("stream.scale", 2, Scale)
    MEMKERN_STORE("stream.add", 3, Add)
    MEMKERN_STORE("stream.triad", 3, Triad)
    MEMKERN_STORE("raider.copy", 2, Copy)
    MEMKERN_STORE("raider.scale", 2, Scale)
    MEMKERN_STORE("raider.add", 3, Add)
    MEMKERN_STORE("raider.triad", 3, Triad)
    MEMKERN_STORE("bs.bs1", 2, Copy)
    MEMKERN_MAP("bs.bs2", 2, Axpby)
    MEMKERN_REDUCE("bs.bs3", 1, Norm)
    MEMKERN_REDUCE("bs.bs4", 2, Dot)
    MEMKERN_REDUCE("bs.bs5", 4, CgUpdate)
    MEMKERN_REDUCE("bs.bs5@release", 2, CgUpdateRelease)
};
// clang-format on

}  // namespace
}  // namespace memkern::MEMKERN_TECHNIQUE::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#include "core/targets.inc"
