# scalar, auto and simd are one set of kernel sources compiled three times: with the compiler's
# vectoriser off, with it on, and with explicit vectors. Each technique is compiled for the same
# instruction sets by Highway, so that a comparison never mixes technique with instruction set.

# Loops must not be replaced by memcpy or memset, which would measure the C library.
set(plain -fno-builtin)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND plain -fno-tree-loop-distribute-patterns)
endif()
set(flags_auto ${MEMKERN_LEVEL} ${plain} -fopenmp-simd)
set(flags_simd ${MEMKERN_LEVEL} ${plain})
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(flags_scalar ${MEMKERN_LEVEL} ${plain} -fno-vectorize -fno-slp-vectorize)
  list(APPEND flags_simd -fno-vectorize -fno-slp-vectorize)
  # A loop that could not be vectorised is a valid variant.
  list(APPEND flags_auto -Wno-pass-failed)
else()
  set(flags_scalar ${MEMKERN_LEVEL} ${plain} -fno-tree-loop-vectorize -fno-tree-slp-vectorize)
  list(APPEND flags_simd -fno-tree-loop-vectorize -fno-tree-slp-vectorize)
endif()
set(disabled 0)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND flags_auto -mprefer-vector-width=512)
  # Highway's bits: AVX-512 is 8, AVX2 9, SSE4 11, SSE2 14. The sub-variants of AVX-512 (0 to 7)
  # have no advantage for kernels that move data. Older releases lack some of the names.
  set(disabled_all 0x34FF)
  set(disabled_usual 0x3CFF)
  set(disabled_ends 0x3EFF)
  set(disabled_baseline 0x3FFF)
  if(NOT DEFINED disabled_${MEMKERN_TARGETS})
    message(FATAL_ERROR "MEMKERN_TARGETS is usual, all, ends or baseline, not ${MEMKERN_TARGETS}")
  endif()
  set(disabled ${disabled_${MEMKERN_TARGETS}})
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # SVE2 with 128 bits is 24, SVE with 256 bits 25: the vectors of SVE2 and SVE have the processor's length.
  set(disabled 0x3000000)
endif()

set(define_scalar MEMKERN_TECHNIQUE=scalar MEMKERN_VARIANT="scalar" MEMKERN_SIMD=0 MEMKERN_AUTO=0
    MEMKERN_NONTEMPORAL=1 "MEMKERN_LOOP=")
set(define_auto MEMKERN_TECHNIQUE=vectorised MEMKERN_VARIANT="auto" MEMKERN_SIMD=0 MEMKERN_AUTO=1
    MEMKERN_NONTEMPORAL=0
    "MEMKERN_LOOP=_Pragma(\"omp simd\")")
set(define_simd MEMKERN_TECHNIQUE=simd MEMKERN_VARIANT="simd" MEMKERN_SIMD=1 MEMKERN_AUTO=0
    MEMKERN_NONTEMPORAL=0 "MEMKERN_LOOP=")

# Each instruction depends on the one before, also at -Ofast.
set_source_files_properties(cpp/families/instructions/cpu.cpp PROPERTIES COMPILE_OPTIONS ${MEMKERN_EXACT})

function(memkern_add_technique name)
  add_library(memkern_${name} OBJECT ${ARGN})
  target_link_libraries(memkern_${name} PUBLIC memkern_options)
  target_compile_options(memkern_${name} PRIVATE ${flags_${name}} -Wno-unknown-pragmas)
  if(MEMKERN_LEVEL STREQUAL "-Ofast")
    set_target_properties(memkern_${name} PROPERTIES MEMKERN_INEXACT ON)
  endif()
  # Of sources without explicit vectors, sanitizers see the same accesses for each instruction set.
  if(MEMKERN_SANITIZE AND disabled_baseline AND NOT name STREQUAL "simd")
    set(disabled ${disabled_baseline})
  endif()
  target_compile_definitions(memkern_${name} PRIVATE
    ${define_${name}} HWY_DISABLED_TARGETS=${disabled})
  if(name STREQUAL "auto")
    # Static analysis checks the same sources as scalar.
    set_target_properties(memkern_${name} PROPERTIES EXPORT_COMPILE_COMMANDS OFF)
  endif()
endfunction()
