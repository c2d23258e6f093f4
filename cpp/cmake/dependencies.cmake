# Highway and hwloc: as the system has them, or built from a source archive (given, or downloaded
# at a pinned release). Either way the targets are memkern_highway and memkern_hwloc.
include(ExternalProject)
include(FetchContent)

set(highway_url https://github.com/google/highway/archive/refs/tags/1.0.3.tar.gz)
set(highway_sha256 566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e)
set(hwloc_url https://download.open-mpi.org/release/hwloc/v2.9/hwloc-2.9.0.tar.bz2)
set(hwloc_sha256 2070e963596a2421b9af8eca43bdec113ee1107aaf7ccb475d4d3767a8856887)

# An archive that was named is taken whatever the system has.
if(MEMKERN_SYSTEM_LIBRARIES AND NOT MEMKERN_HIGHWAY_ARCHIVE)
  find_path(HIGHWAY_INCLUDE hwy/highway.h)
  find_library(HIGHWAY_LIBRARY hwy)
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
  if(MEMKERN_HIGHWAY_ARCHIVE)
    message(STATUS "Highway: built from ${MEMKERN_HIGHWAY_ARCHIVE}")
    FetchContent_Declare(highway URL ${MEMKERN_HIGHWAY_ARCHIVE})
  else()
    message(STATUS "Highway: downloaded from ${highway_url}")
    FetchContent_Declare(highway URL ${highway_url} URL_HASH SHA256=${highway_sha256})
  endif()
  FetchContent_GetProperties(highway)
  if(NOT highway_POPULATED)
    FetchContent_Populate(highway)
    # Only what is used is built, and none of it is installed.
    add_subdirectory(${highway_SOURCE_DIR} ${highway_BINARY_DIR} EXCLUDE_FROM_ALL)
  endif()
  set(HIGHWAY_INCLUDE ${highway_SOURCE_DIR})
  target_include_directories(memkern_highway SYSTEM INTERFACE ${HIGHWAY_INCLUDE})
  target_link_libraries(memkern_highway INTERFACE hwy)
endif()

set(MEMKERN_HIGHWAY_VERSION "")
file(STRINGS ${HIGHWAY_INCLUDE}/hwy/base.h parts REGEX "define HWY_(MAJOR|MINOR|PATCH) ")
if(NOT parts)
  file(STRINGS ${HIGHWAY_INCLUDE}/hwy/highway.h parts REGEX "define HWY_(MAJOR|MINOR|PATCH) ")
endif()
foreach(part IN LISTS parts)
  string(REGEX MATCH "[0-9]+" number "${part}")
  string(APPEND MEMKERN_HIGHWAY_VERSION ".${number}")
endforeach()
string(REGEX REPLACE "^\\." "" MEMKERN_HIGHWAY_VERSION "${MEMKERN_HIGHWAY_VERSION}")

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
  if(MEMKERN_HWLOC_ARCHIVE)
    message(STATUS "hwloc: built from ${MEMKERN_HWLOC_ARCHIVE}")
    set(source URL ${MEMKERN_HWLOC_ARCHIVE})
  else()
    message(STATUS "hwloc: downloaded from ${hwloc_url}")
    set(source URL ${hwloc_url} URL_HASH SHA256=${hwloc_sha256})
  endif()
  set(prefix ${CMAKE_BINARY_DIR}/hwloc)
  # The topology of this machine's processors and memory is all that is needed.
  ExternalProject_Add(hwloc_project
    ${source}
    PREFIX ${prefix}
    CONFIGURE_COMMAND <SOURCE_DIR>/configure --prefix=${prefix} --enable-static --disable-shared
      --with-pic --disable-libxml2 --disable-pci --disable-opencl --disable-cuda --disable-nvml
      --disable-rsmi --disable-levelzero --disable-gl --disable-libudev --disable-cairo
      --disable-doxygen CC=${CMAKE_C_COMPILER}
    BUILD_COMMAND make -C hwloc
    INSTALL_COMMAND make -C hwloc install COMMAND make -C include install
    BUILD_BYPRODUCTS ${prefix}/lib/libhwloc.a)
  file(MAKE_DIRECTORY ${prefix}/include)
  add_dependencies(memkern_hwloc hwloc_project)
  target_include_directories(memkern_hwloc SYSTEM INTERFACE ${prefix}/include)
  target_link_libraries(memkern_hwloc INTERFACE ${prefix}/lib/libhwloc.a)
endif()
