// Apart from the module, so that another commit does not compile the module again.
#include "python/build.hpp"

namespace memkern {

const Build kBuild{MEMKERN_COMPILER, MEMKERN_FLAGS, MEMKERN_VERSION, MEMKERN_COMMIT,
                   MEMKERN_HIGHWAY};

}  // namespace memkern
