# Which flags the compiler gets: a kernel must be what its definition and its names say.
#
# Of the user's flags, and of those of Debian, conda or Spack, words that select instructions or change
# how code is generated are left out, and named in a warning. What a compiler's wrapper or configuration
# adds can't be seen here: flags of memkern, which come later, take it back.
include(CheckCXXSourceCompiles)

set(changing "^--?([fmK]|qopt|a?x[A-Z]|tp=|pg?$|param|coverage|use_fast_math|prec-|Xclang|D(HWY|MEMKERN)_)")
string(JOIN "|" harmless
  "f(no-)?(PIC|pic|PIE|pie|plt|visibility|exceptions|asynchronous-unwind-tables|unwind-tables)"
  "f(no-)?(diagnostics|color-diagnostics|message-length|max-errors|permissive|debug|working-directory)"
  "f[a-z]+-prefix-map" "f(data|function)-sections" "f(openmp|sanitize|use-ld|abi)" "m(64|tune=|abi=|cmodel=)")

# Leaves words out of the flags in a variable, and says so.
function(memkern_leave_out variable)
  string(REGEX REPLACE "[ \t\r\n]+" " " flags "${${variable}}")
  # An option that is written in two words.
  string(REGEX REPLACE "(-X[a-z]+|-mllvm|--param|--compiler-options) " "\\1\t" flags "${flags}")
  string(REPLACE ";" "\\;" flags "${flags}")
  string(REPLACE " " ";" flags "${flags}")
  set(part kept)
  foreach(word IN LISTS flags)
    if(word MATCHES "${changing}" AND NOT word MATCHES "^-(${harmless})")
      set(part left)
    elseif(word MATCHES "^-")
      set(part kept)
    endif()
    string(APPEND ${part} " ${word}")
  endforeach()
  string(STRIP "${kept}" kept)
  string(REPLACE "\t" " " kept "${kept}")
  set(${variable} "${kept}" PARENT_SCOPE)
  if(left)
    string(REPLACE "\t" " " left "${left}")
    message(WARNING "flags in ${variable} that change what a kernel is are left out:${left}")
  endif()
endfunction()

# The user's level of optimisation is that of the kernels: the last one of the flags for all build types,
# unless those of the build type were given as well.
string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
set(flags "${CMAKE_CXX_FLAGS_${type}} ${CMAKE_CXX_FLAGS}")
string(STRIP "${CMAKE_CXX_FLAGS_${type}_INIT}" default)
if(NOT CMAKE_CXX_FLAGS_${type} STREQUAL default)
  set(flags "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}")
endif()
string(REGEX MATCHALL "(^|[ \t\n])-O[^ \t\n]*" levels "${flags}")
list(POP_BACK levels level)
string(STRIP "${level}" level)
foreach(of CXX_FLAGS CXX_FLAGS_${type} SHARED_LINKER_FLAGS MODULE_LINKER_FLAGS EXE_LINKER_FLAGS)
  memkern_leave_out(CMAKE_${of})
  string(REGEX REPLACE "(^| )-O[^ ]*" "" CMAKE_${of} "${CMAKE_${of}}")
  string(STRIP "${CMAKE_${of}}" CMAKE_${of})
endforeach()
string(STRIP "${level} ${CMAKE_CXX_FLAGS_${type}}" CMAKE_CXX_FLAGS_${type})
# What records have. Of a build type without a level, such as Debug, only kernels are optimised.
string(STRIP "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}" MEMKERN_FLAGS)
set(MEMKERN_LEVEL "${level}")
if(NOT level)
  set(MEMKERN_LEVEL -O3)
  string(STRIP "-O3 ${MEMKERN_FLAGS}" MEMKERN_FLAGS)
endif()

# -Ofast allows the kernels what it says, but nothing else: with these flags checks of NaN would do nothing.
set(MEMKERN_EXACT -fno-fast-math)
set(MEMKERN_OWN_FLAGS -fno-lto -fno-stack-protector -fno-stack-clash-protection -fomit-frame-pointer)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # -mno-sse3, wherever it is, takes all vectors but those of the base from a later -march as well.
  list(APPEND MEMKERN_OWN_FLAGS -fcf-protection=none -march=x86-64 -mno-sse3 -mno-bmi -mno-bmi2 -mno-lzcnt
    -mno-popcnt -mno-movbe -mno-adx)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND MEMKERN_OWN_FLAGS -mbranch-protection=none -march=armv8-a)
endif()

# Whether all of this holds for what is compiled.
function(memkern_check_flags out)
  list(JOIN MEMKERN_OWN_FLAGS " " own)
  set(CMAKE_REQUIRED_FLAGS "${own} ${MEMKERN_EXACT}")
  set(CMAKE_REQUIRED_QUIET ON)
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  check_cxx_source_compiles("
    #if defined __SSE3__ || defined __AVX__ || defined __BMI__ || defined __BMI2__ || defined __LZCNT__
    #error instructions
    #elif defined __POPCNT__ || defined __MOVBE__ || defined __ADX__ || defined __ARM_FEATURE_SVE
    #error instructions
    #elif defined __FAST_MATH__ || defined __ASSOCIATIVE_MATH__ || __FINITE_MATH_ONLY__
    #error arithmetic
    #endif
    int main() {}" ${out})
endfunction()

memkern_check_flags(MEMKERN_FLAGS_HOLD)
if(NOT MEMKERN_FLAGS_HOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Behind those that a wrapper appends.
  list(JOIN MEMKERN_OWN_FLAGS " " own)
  file(WRITE ${CMAKE_BINARY_DIR}/last.specs "*cc1plus:\n+ ${own} ${MEMKERN_EXACT}\n\n")
  list(APPEND MEMKERN_OWN_FLAGS -specs=${CMAKE_BINARY_DIR}/last.specs)
  memkern_check_flags(MEMKERN_SPECS_HOLD)
endif()
if(NOT MEMKERN_FLAGS_HOLD AND NOT MEMKERN_SPECS_HOLD)
  message(FATAL_ERROR "${CMAKE_CXX_COMPILER} appends flags that select instructions or change arithmetic to "
    "those of memkern: CMAKE_CXX_COMPILER (or CXX) must be the compiler itself")
endif()
