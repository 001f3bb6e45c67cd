# Target `libtorch`: LibTorch without its own CMake package, which insists on a CUDA toolkit even for a CPU-only
# program. Torch_ROOT, or Torch_DIR as its package would take it (.../share/cmake/Torch), names your own; each also as
# an environment variable. Otherwise it is the one in ZEROTH_TORCH_ROOT. A version other than ZEROTH_TORCH_VERSION is a
# warning. Programs that find an installed Zeroth include this file too.
foreach(variable Torch_ROOT Torch_DIR)
  if(NOT ${variable} AND DEFINED ENV{${variable}})
    set(${variable} $ENV{${variable}})
  endif()
endforeach()
if(NOT Torch_ROOT AND Torch_DIR)
  get_filename_component(Torch_ROOT ${Torch_DIR}/../../.. ABSOLUTE)
elseif(NOT Torch_ROOT)
  set(Torch_ROOT ${ZEROTH_TORCH_ROOT})
endif()
if(NOT EXISTS ${Torch_ROOT}/lib/libtorch_cpu.so)
  message(FATAL_ERROR
    "No LibTorch in ${Torch_ROOT}: run tools/setup, or pass -DTorch_ROOT=FOLDER (with include/ and lib/)")
endif()

set(version "unknown")
foreach(header headeronly/version.h csrc/api/include/torch/version.h)
  if(version STREQUAL "unknown" AND EXISTS ${Torch_ROOT}/include/torch/${header})
    file(STRINGS ${Torch_ROOT}/include/torch/${header} line REGEX "\"[0-9]+\\.[0-9]+\\.[0-9]+\"")
    string(REGEX REPLACE ".*\"([0-9.]+)\".*" "\\1" version "${line}")
  endif()
endforeach()
message(STATUS "LibTorch ${version}: ${Torch_ROOT}")
set(ZEROTH_TORCH_FOUND ${version} CACHE INTERNAL "The version of LibTorch")
if(NOT version STREQUAL ZEROTH_TORCH_VERSION)
  message(WARNING "LibTorch ${version} is untested: Zeroth is tested with ${ZEROTH_TORCH_VERSION}")
endif()
if(EXISTS ${Torch_ROOT}/share/cmake/Torch/TorchConfig.cmake)
  file(STRINGS ${Torch_ROOT}/share/cmake/Torch/TorchConfig.cmake old_abi REGEX "CXX11_ABI=0")
  if(old_abi)
    message(FATAL_ERROR
      "LibTorch in ${Torch_ROOT} has the old C++ ABI; Zeroth needs one of the new ABI (any since 2.7)")
  endif()
endif()

# The wheel carries headers of another fmt; ours, in ${fmt_include}, must come first.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/before_torch)
file(CREATE_LINK ${fmt_include}/fmt ${CMAKE_BINARY_DIR}/before_torch/fmt SYMBOLIC)

add_library(libtorch INTERFACE IMPORTED)
target_include_directories(libtorch SYSTEM INTERFACE
  ${CMAKE_BINARY_DIR}/before_torch ${Torch_ROOT}/include ${Torch_ROOT}/include/torch/csrc/api/include)
target_compile_definitions(libtorch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
# The wheel's libtorch_cpu names CUDA libraries that it finds by its own run path; the linker need not see them.
target_link_options(libtorch INTERFACE -Wl,--allow-shlib-undefined)
target_link_libraries(libtorch INTERFACE ${Torch_ROOT}/lib/libtorch_cpu.so ${Torch_ROOT}/lib/libc10.so)
