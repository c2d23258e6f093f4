# Finds the CUDA Toolkit for the optional module _memkern_cuda, and sets its options.
set(MEMKERN_CUDA_ARCHITECTURES "" CACHE STRING
    "Architectures: numbers, or all; by default those of the GPUs in this machine, else 80, 90 and PTX")
set(MEMKERN_CUDA_FOUND OFF)
include(architectures)
if(MEMKERN_CUDA STREQUAL "OFF" OR MEMKERN_SANITIZE)
  return()
endif()

macro(memkern_without_cuda level reason)
  if(MEMKERN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MEMKERN_CUDA is ON but ${reason}")
  endif()
  message(${level} "${reason}: _memkern_cuda is not built")
  return()
endmacro()

find_program(MEMKERN_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda
  PATH_SUFFIXES bin)
if(NOT MEMKERN_NVCC)
  memkern_without_cuda(STATUS "there is no nvcc in PATH or CUDA_PATH")
endif()

# The host compiler is that of the other sources or, if the toolkit does not support it, the toolkit's
# default. check_language tries both, because a failure of enable_language would end the whole build.
if(NOT CMAKE_CUDA_COMPILER)
  include(CheckLanguage)
  set(ENV{CUDACXX} ${MEMKERN_NVCC})
  if(CMAKE_CUDA_HOST_COMPILER)
    set(ENV{CUDAHOSTCXX} ${CMAKE_CUDA_HOST_COMPILER})
  elseif(NOT DEFINED ENV{CUDAHOSTCXX})
    set(ENV{CUDAHOSTCXX} ${CMAKE_CXX_COMPILER})
  endif()
  unset(CMAKE_CUDA_COMPILER CACHE)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    unset(ENV{CUDAHOSTCXX})
    unset(CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE)
    check_language(CUDA)
  endif()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  memkern_without_cuda(WARNING "${MEMKERN_NVCC} does not work with this compiler")
endif()

if(NOT MEMKERN_CUDA_ARCHITECTURES)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE cards RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed AND cards MATCHES "^[0-9.\n]+$")
    string(REPLACE "." "" cards "${cards}")
    string(REPLACE "\n" ";" cards "${cards}")
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known)
    memkern_architectures("${cards}" "${known}" CMAKE_CUDA_ARCHITECTURES)
  else()
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
elseif(MEMKERN_CUDA_ARCHITECTURES STREQUAL "all")
  # All that the toolkit supports, from 75 on; the last one also as PTX for later architectures.
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known)
  set(CMAKE_CUDA_ARCHITECTURES "")
  foreach(arch 75 80 86 89 90 100 120)
    if(known MATCHES "compute_${arch}\n")
      list(APPEND CMAKE_CUDA_ARCHITECTURES ${arch}-real)
      set(last ${arch})
    endif()
  endforeach()
  list(APPEND CMAKE_CUDA_ARCHITECTURES ${last}-virtual)
else()
  set(CMAKE_CUDA_ARCHITECTURES ${MEMKERN_CUDA_ARCHITECTURES})
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
memkern_leave_out(CMAKE_CUDA_FLAGS)
set(MEMKERN_CUDA_FOUND ON)

function(memkern_cuda_options target)
  set(warnings -Wall,-Wextra,-Wconversion,-Wshadow)
  set_target_properties(${target} PROPERTIES
    CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_VISIBILITY_PRESET hidden)
  target_include_directories(${target} PRIVATE cpp)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${warnings}>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${MEMKERN_WERROR}>>:-Werror=all-warnings>
    $<$<COMPILE_LANGUAGE:CXX>:${MEMKERN_OWN_FLAGS} ${MEMKERN_EXACT} -Wall -Wextra -Wpedantic -Wconversion -Wshadow>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${MEMKERN_WERROR}>>:-Werror>)
  list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
  target_compile_definitions(${target} PRIVATE MEMKERN_CUDA_ARCHITECTURES="${architectures}")
endfunction()
