// A separate file, so that a new commit does not recompile the module.
#include "python/build.hpp"

namespace memkern {

const Build kBuild{MEMKERN_COMPILER, MEMKERN_FLAGS, MEMKERN_VERSION, MEMKERN_COMMIT,
                   MEMKERN_HIGHWAY};

}  // namespace memkern
