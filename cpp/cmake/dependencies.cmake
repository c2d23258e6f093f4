# Highway and hwloc: those of the system, or built from the source archive of a pinned release
# (given, or downloaded). In both cases the targets are memkern_highway and memkern_hwloc.
include(ExternalProject)
include(FetchContent)

set(highway_url https://github.com/google/highway/archive/refs/tags/1.0.3.tar.gz)
set(highway_sha256 566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e)
set(hwloc_url https://download.open-mpi.org/release/hwloc/v2.9/hwloc-2.9.0.tar.bz2)
set(hwloc_sha256 2070e963596a2421b9af8eca43bdec113ee1107aaf7ccb475d4d3767a8856887)

# Sets `out` to the source of a library for FetchContent: the given archive, or else a download.
function(memkern_source name archive url sha256 out)
  if(archive)
    if(NOT EXISTS "${archive}")
      message(FATAL_ERROR "there is no ${name} source archive ${archive}")
    endif()
    file(SHA256 "${archive}" found)
    if(NOT found STREQUAL sha256)
      message(FATAL_ERROR "the ${name} source archive ${archive} must have the SHA-256 hash ${sha256} "
        "of ${url}, not ${found}")
    endif()
    message(STATUS "${name}: built from ${archive}")
    set(url "${archive}")
  else()
    message(STATUS "${name}: downloaded from ${url}")
  endif()
  set(${out} URL "${url}" URL_HASH SHA256=${sha256} PARENT_SCOPE)
endfunction()

function(memkern_highway_version include out)
  foreach(header base.h highway.h)
    file(STRINGS ${include}/hwy/${header} lines REGEX "define HWY_(MAJOR|MINOR|PATCH) ")
    if(lines)
      break()
    endif()
  endforeach()
  string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
  list(JOIN numbers "." version)
  set(${out} "${version}" PARENT_SCOPE)
endfunction()

# A given archive takes precedence over the system's library, and the pinned release over an older one
# of the system.
if(MEMKERN_SYSTEM_LIBRARIES AND NOT MEMKERN_HIGHWAY_ARCHIVE)
  find_path(HIGHWAY_INCLUDE hwy/highway.h)
  find_library(HIGHWAY_LIBRARY hwy)
  if(HIGHWAY_INCLUDE)
    memkern_highway_version(${HIGHWAY_INCLUDE} MEMKERN_HIGHWAY_VERSION)
    if(MEMKERN_HIGHWAY_VERSION VERSION_LESS 1.0.3)
      set(HIGHWAY_LIBRARY "")
    endif()
  endif()
endif()
add_library(memkern_highway INTERFACE)
if(HIGHWAY_INCLUDE AND HIGHWAY_LIBRARY)
  message(STATUS "Highway: ${HIGHWAY_LIBRARY}")
  target_include_directories(memkern_highway SYSTEM INTERFACE ${HIGHWAY_INCLUDE})
  target_link_libraries(memkern_highway INTERFACE ${HIGHWAY_LIBRARY})
else()
  set(HWY_ENABLE_TESTS OFF CACHE BOOL "" FORCE)
  set(HWY_ENABLE_EXAMPLES OFF CACHE BOOL "" FORCE)
  set(HWY_ENABLE_CONTRIB OFF CACHE BOOL "" FORCE)
  set(HWY_ENABLE_INSTALL OFF CACHE BOOL "" FORCE)
  set(HWY_FORCE_STATIC_LIBS ON CACHE BOOL "" FORCE)
  set(BUILD_TESTING OFF CACHE BOOL "" FORCE)
  memkern_source(Highway "${MEMKERN_HIGHWAY_ARCHIVE}" ${highway_url} ${highway_sha256} source)
  # The folder does not exist, so that FetchContent adds no targets: only those in use are built below,
  # and none are installed.
  FetchContent_Declare(highway ${source} SOURCE_SUBDIR none)
  FetchContent_MakeAvailable(highway)
  add_subdirectory(${highway_SOURCE_DIR} ${highway_BINARY_DIR} EXCLUDE_FROM_ALL)
  target_compile_options(hwy PRIVATE ${MEMKERN_OWN_FLAGS} ${MEMKERN_EXACT})
  set(HIGHWAY_INCLUDE ${highway_SOURCE_DIR})
  target_include_directories(memkern_highway SYSTEM INTERFACE ${HIGHWAY_INCLUDE})
  target_link_libraries(memkern_highway INTERFACE hwy)
endif()

memkern_highway_version(${HIGHWAY_INCLUDE} MEMKERN_HIGHWAY_VERSION)

if(MEMKERN_SYSTEM_LIBRARIES AND NOT MEMKERN_HWLOC_ARCHIVE)
  find_path(HWLOC_INCLUDE hwloc.h)
  find_library(HWLOC_LIBRARY hwloc)
endif()
add_library(memkern_hwloc INTERFACE)
if(HWLOC_INCLUDE AND HWLOC_LIBRARY)
  message(STATUS "hwloc: ${HWLOC_LIBRARY}")
  target_include_directories(memkern_hwloc SYSTEM INTERFACE ${HWLOC_INCLUDE})
  target_link_libraries(memkern_hwloc INTERFACE ${HWLOC_LIBRARY})
else()
  memkern_source(hwloc "${MEMKERN_HWLOC_ARCHIVE}" ${hwloc_url} ${hwloc_sha256} source)
  set(prefix ${CMAKE_BINARY_DIR}/hwloc)
  # Only the topology of processors and memory is needed.
  ExternalProject_Add(hwloc_project
    ${source}
    # With the dates of the archive, its makefiles do not regenerate files.
    DOWNLOAD_EXTRACT_TIMESTAMP ON
    PREFIX ${prefix}
    CONFIGURE_COMMAND <SOURCE_DIR>/configure --prefix=${prefix} --enable-static --disable-shared
      --with-pic --disable-libxml2 --disable-pci --disable-opencl --disable-cuda --disable-nvml
      --disable-rsmi --disable-levelzero --disable-gl --disable-libudev --disable-cairo
      --disable-doxygen CC=${CMAKE_C_COMPILER}
    BUILD_COMMAND make -C hwloc
    INSTALL_COMMAND make -C hwloc install COMMAND make -C include install
    BUILD_BYPRODUCTS ${prefix}/lib/libhwloc.a
    LOG_CONFIGURE ON LOG_BUILD ON LOG_INSTALL ON LOG_OUTPUT_ON_FAILURE ON)
  file(MAKE_DIRECTORY ${prefix}/include)
  add_dependencies(memkern_hwloc hwloc_project)
  target_include_directories(memkern_hwloc SYSTEM INTERFACE ${prefix}/include)
  target_link_libraries(memkern_hwloc INTERFACE ${prefix}/lib/libhwloc.a)
  # Hidden, because another hwloc may be in the same process, such as MPI's.
  target_link_options(memkern_hwloc INTERFACE LINKER:--exclude-libs,ALL)
endif()
