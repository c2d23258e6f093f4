// The operations of BS2 to BS5 on a GPU.
#pragma once

#include "families/streaming/gpu-inl.hpp"

namespace memkern::gpu {
namespace {

#define MEMKERN_OPERATIONS
#include "families/bs/entries.inc"
#undef MEMKERN_OPERATIONS

}  // namespace
}  // namespace memkern::gpu
