# Language level, warnings and output folders for every target of ours.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Not CMAKE_POSITION_INDEPENDENT_CODE: it gives programs -fPIE, which the precompiled header of the libraries does not
# fit.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fPIC>)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

# Builds use ccache where it is installed. For precompiled headers it needs a setting, and GCC has to keep the name of
# the header in the preprocessed source.
find_program(ZEROTH_CCACHE ccache DOC "Caches what the compilers make; empty: nothing is cached")
foreach(language CXX CUDA)
  if(ZEROTH_CCACHE AND NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${ZEROTH_CCACHE})
  endif()
endforeach()
if(ZEROTH_CCACHE)
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()

if(ZEROTH_SANITIZE STREQUAL "address")
  # Not vptr: LibTorch hides the type information that it needs.
  set(sanitizers -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
elseif(ZEROTH_SANITIZE STREQUAL "fuzz")  # clang only; tools/fuzz
  set(sanitizers -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize=vptr -fno-sanitize-recover=undefined)
elseif(ZEROTH_SANITIZE STREQUAL "thread")
  set(sanitizers -fsanitize=thread)
elseif(ZEROTH_SANITIZE)
  message(FATAL_ERROR "ZEROTH_SANITIZE=${ZEROTH_SANITIZE}: it is address, thread, fuzz or empty")
endif()
if(ZEROTH_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${sanitizers};-fno-omit-frame-pointer;-g1>")
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)  # what sanitizers add looks so to it
  add_link_options(${sanitizers})
endif()

add_library(zeroth_warnings INTERFACE)
target_compile_options(zeroth_warnings INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                       $<$<BOOL:${ZEROTH_WERROR}>:-Werror>)
target_include_directories(zeroth_warnings INTERFACE ${CMAKE_SOURCE_DIR})
