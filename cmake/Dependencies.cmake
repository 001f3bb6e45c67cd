# Third-party packages as targets, from the system or, for machines without network, from a folder that tools/bundle
# made. Their headers are SYSTEM: our warnings do not reach them.
find_package(Threads REQUIRED)
if(ZEROTH_BUNDLE)
  include(Bundle)
else()
  find_package(fmt REQUIRED)
  get_target_property(fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  find_package(nlohmann_json REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(Boost REQUIRED)
  find_package(doctest REQUIRED)

  # Static libraries are preferred: programs then run where these packages are not installed.
  find_library(ZEROTH_PCRE2_LIBRARY NAMES libpcre2-8.a pcre2-8 REQUIRED)
  add_library(zeroth_pcre2 INTERFACE)
  target_link_libraries(zeroth_pcre2 INTERFACE ${ZEROTH_PCRE2_LIBRARY})

  find_library(ZEROTH_SODIUM_LIBRARY NAMES libsodium.a sodium REQUIRED)
  add_library(zeroth_sodium INTERFACE)
  target_link_libraries(zeroth_sodium INTERFACE ${ZEROTH_SODIUM_LIBRARY})
  # Debian's libsodium.a is compiled for programs: a shared library can hold it if it does not export its symbols.
  target_link_options(zeroth_sodium INTERFACE LINKER:--exclude-libs,libsodium.a)

  find_library(ZEROTH_UTF8PROC_LIBRARY NAMES libutf8proc.a utf8proc REQUIRED)
  add_library(zeroth_utf8proc INTERFACE)
  target_link_libraries(zeroth_utf8proc INTERFACE ${ZEROTH_UTF8PROC_LIBRARY})

  find_library(ZEROTH_ZLIB_LIBRARY NAMES libz.a z REQUIRED)
  add_library(zeroth_zlib INTERFACE)
  target_link_libraries(zeroth_zlib INTERFACE ${ZEROTH_ZLIB_LIBRARY})

  find_library(ZEROTH_ZSTD_LIBRARY NAMES libzstd.a zstd REQUIRED)
  add_library(zeroth_zstd INTERFACE)
  target_link_libraries(zeroth_zstd INTERFACE ${ZEROTH_ZSTD_LIBRARY})

  # Debian and Ubuntu have fmt as a shared library only. Its headers hold all of its code, so our programs get a copy.
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  try_compile(ZEROTH_FMT_INSIDE ${CMAKE_BINARY_DIR}/fmt_inside ${CMAKE_CURRENT_LIST_DIR}/fmt_inside.cpp
    LINK_LIBRARIES fmt::fmt CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
  unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
  if(ZEROTH_FMT_INSIDE)
    add_library(zeroth_fmt_inside OBJECT ${CMAKE_CURRENT_LIST_DIR}/fmt_inside.cpp)
    target_link_libraries(zeroth_fmt_inside PRIVATE fmt::fmt)
  else()
    message(STATUS "fmt: programs need its shared library, as fmt_inside.cpp does not fit fmt ${fmt_VERSION}")
  endif()
endif()

# io_uring for files on NVMe, which threads read and write without it.
find_path(ZEROTH_URING_INCLUDE liburing.h)
find_library(ZEROTH_URING NAMES liburing.a uring)
set(ZEROTH_HAVE_LIBURING FALSE)
if(ZEROTH_URING_INCLUDE AND ZEROTH_URING)
  set(ZEROTH_HAVE_LIBURING TRUE)
  message(STATUS "io_uring: on, with ${ZEROTH_URING}")
else()
  message(STATUS "io_uring: off, for want of liburing (liburing-dev)")
endif()

set(ZEROTH_TORCH_ROOT ${CMAKE_SOURCE_DIR}/.deps/torch)  # what tools/setup brings
file(STRINGS ${CMAKE_SOURCE_DIR}/tools/versions ZEROTH_TORCH_VERSION REGEX "^TORCH_VERSION=")
string(REPLACE "TORCH_VERSION=" "" ZEROTH_TORCH_VERSION ${ZEROTH_TORCH_VERSION})
include(LibTorch)
file(REAL_PATH ${Torch_ROOT} torch_folder)
# The same run path in the build tree: CMake would pad another one with empty entries, by which the loader takes
# libraries from the current folder.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(torch_copy lib/zeroth/torch)  # in a prefix, where the component LibTorch puts one
set(CMAKE_INSTALL_RPATH $ORIGIN/../lib $ORIGIN/../${torch_copy}/lib ${torch_folder}/lib)
include(Arrow)
include(Cuda)
