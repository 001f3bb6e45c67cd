# LibTorch without its own CMake package: that one insists on a CUDA toolkit, while a CPU-only program needs none.
# Torch_ROOT (or Torch_DIR) names a `torch` folder with include/ and lib/; tools/setup puts the pinned wheel under .deps.
if(NOT Torch_ROOT AND Torch_DIR)
  get_filename_component(Torch_ROOT "${Torch_DIR}/../../.." ABSOLUTE)
endif()
if(NOT Torch_ROOT AND DEFINED ENV{Torch_ROOT})
  set(Torch_ROOT $ENV{Torch_ROOT})
endif()
if(NOT Torch_ROOT)
  set(Torch_ROOT ${CMAKE_SOURCE_DIR}/.deps/torch)
endif()
if(NOT EXISTS ${Torch_ROOT}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No LibTorch in ${Torch_ROOT}: run tools/setup, or pass -DTorch_ROOT=<folder with include/ and lib/>")
endif()
message(STATUS "LibTorch: ${Torch_ROOT}")

add_library(libtorch INTERFACE)
target_include_directories(libtorch SYSTEM INTERFACE
  ${Torch_ROOT}/include ${Torch_ROOT}/include/torch/csrc/api/include)
target_compile_definitions(libtorch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
target_link_libraries(libtorch INTERFACE ${Torch_ROOT}/lib/libtorch_cpu.so ${Torch_ROOT}/lib/libc10.so)
# libtorch_cpu of the CUDA wheel names libcudart and libcupti; they lie beside it or in wheels next to it.
file(GLOB ZEROTH_TORCH_RUNTIME_DIRS ${Torch_ROOT}/../nvidia/*/lib ${Torch_ROOT}/../nvidia/*/*/lib)
target_link_options(libtorch INTERFACE -Wl,--allow-shlib-undefined)
set(CMAKE_BUILD_RPATH ${Torch_ROOT}/lib ${ZEROTH_TORCH_RUNTIME_DIRS})
set(CMAKE_INSTALL_RPATH ${CMAKE_BUILD_RPATH})

# One precompiled header for every target that includes torch.
add_library(zeroth_torch_pch OBJECT ${CMAKE_CURRENT_LIST_DIR}/torch_pch.cpp)
target_link_libraries(zeroth_torch_pch PUBLIC libtorch fmt::fmt zeroth_warnings)
target_precompile_headers(zeroth_torch_pch PRIVATE ${CMAKE_CURRENT_LIST_DIR}/torch_pch.h)
