// Properties of the build of the extension.
#pragma once

namespace memkern {

struct Build {
  const char* compiler;
  const char* flags;
  const char* version;
  const char* commit;
  const char* highway;
};

extern const Build kBuild;

}  // namespace memkern
