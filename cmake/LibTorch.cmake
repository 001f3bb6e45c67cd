# Target `libtorch`: LibTorch without its own CMake package, which insists on a CUDA toolkit even for a CPU-only program.
# Torch_ROOT, or Torch_DIR as its package would take it (.../share/cmake/Torch), names your own; each also as an
# environment variable. Otherwise it is the pinned one that tools/setup brings.
foreach(variable Torch_ROOT Torch_DIR)
  if(NOT ${variable} AND DEFINED ENV{${variable}})
    set(${variable} $ENV{${variable}})
  endif()
endforeach()
if(NOT Torch_ROOT AND Torch_DIR)
  get_filename_component(Torch_ROOT ${Torch_DIR}/../../.. ABSOLUTE)
elseif(NOT Torch_ROOT)
  set(Torch_ROOT ${CMAKE_SOURCE_DIR}/.deps/torch)
endif()
if(NOT EXISTS ${Torch_ROOT}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No LibTorch in ${Torch_ROOT}: run tools/setup, or pass -DTorch_ROOT=FOLDER (with include/ and lib/)")
endif()

# The version that this tree is tested with, and the one that is there.
file(STRINGS ${CMAKE_SOURCE_DIR}/tools/versions pinned REGEX "^TORCH_VERSION=")
string(REPLACE "TORCH_VERSION=" "" pinned "${pinned}")
set(version "unknown")
foreach(header headeronly/version.h csrc/api/include/torch/version.h)
  if(version STREQUAL "unknown" AND EXISTS ${Torch_ROOT}/include/torch/${header})
    file(STRINGS ${Torch_ROOT}/include/torch/${header} line REGEX "\"[0-9]+\\.[0-9]+\\.[0-9]+\"")
    string(REGEX REPLACE ".*\"([0-9.]+)\".*" "\\1" version "${line}")
  endif()
endforeach()
message(STATUS "LibTorch ${version}: ${Torch_ROOT}")
if(NOT version STREQUAL pinned)
  message(WARNING "LibTorch ${version} is untested: Zeroth is tested with ${pinned}")
endif()
if(EXISTS ${Torch_ROOT}/share/cmake/Torch/TorchConfig.cmake)
  file(STRINGS ${Torch_ROOT}/share/cmake/Torch/TorchConfig.cmake old_abi REGEX "CXX11_ABI=0")
  if(old_abi)
    message(FATAL_ERROR "LibTorch in ${Torch_ROOT} has the old C++ ABI; Zeroth needs one of the new ABI (any since 2.7)")
  endif()
endif()

# The wheel carries headers of another fmt; ours must come first.
get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/before_torch)
file(CREATE_LINK ${fmt_include}/fmt ${CMAKE_BINARY_DIR}/before_torch/fmt SYMBOLIC)

add_library(libtorch INTERFACE)
target_include_directories(libtorch SYSTEM INTERFACE
  ${CMAKE_BINARY_DIR}/before_torch ${Torch_ROOT}/include ${Torch_ROOT}/include/torch/csrc/api/include
  ${ZEROTH_BUNDLE_INCLUDE})  # a bundle has the headers of Gloo, which c10d includes
target_compile_definitions(libtorch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
# The wheel's libtorch_cpu names CUDA libraries that it finds by its own run path; the linker need not see them.
target_link_options(libtorch INTERFACE -Wl,--allow-shlib-undefined)
target_link_libraries(libtorch INTERFACE ${Torch_ROOT}/lib/libtorch_cpu.so ${Torch_ROOT}/lib/libc10.so)
set(CMAKE_BUILD_RPATH ${Torch_ROOT}/lib)
set(CMAKE_INSTALL_RPATH ${Torch_ROOT}/lib)

# One precompiled header for every target that includes torch.
add_library(zeroth_torch_pch OBJECT ${CMAKE_CURRENT_LIST_DIR}/torch_pch.cpp)
target_link_libraries(zeroth_torch_pch PUBLIC libtorch fmt::fmt zeroth_warnings)
target_precompile_headers(zeroth_torch_pch PRIVATE ${CMAKE_CURRENT_LIST_DIR}/torch_pch.h)
