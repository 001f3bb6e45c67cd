# The packages of Dependencies.cmake from the folder that tools/bundle made. PCRE2, libsodium, utf8proc, zlib,
# Zstandard and fmt are compiled.
enable_language(C)
if(NOT EXISTS ${ZEROTH_BUNDLE}/include/pcre2.h)
  message(FATAL_ERROR "No bundle in ${ZEROTH_BUNDLE}: tools/bundle makes one")
endif()

foreach(headers nlohmann_json::nlohmann_json CLI11::CLI11 Boost::headers doctest::doctest)
  add_library(${headers} INTERFACE IMPORTED)
  target_include_directories(${headers} SYSTEM INTERFACE ${ZEROTH_BUNDLE}/include)
endforeach()

# bundled_library(NAME SOURCE...): a static library whose code is not ours, so neither are its warnings.
function(bundled_library name)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} SYSTEM PUBLIC
    $<BUILD_INTERFACE:${ZEROTH_BUNDLE}/include> $<INSTALL_INTERFACE:include/zeroth/bundled>)
  target_compile_options(${name} PRIVATE -w)
endfunction()

bundled_library(zeroth_fmt ${ZEROTH_BUNDLE}/src/fmt/format.cc)
set(fmt_include ${ZEROTH_BUNDLE}/include)
add_library(fmt::fmt ALIAS zeroth_fmt)

bundled_library(zeroth_utf8proc ${ZEROTH_BUNDLE}/src/utf8proc/utf8proc.c)

file(GLOB zlib_sources ${ZEROTH_BUNDLE}/src/zlib/*.c)
bundled_library(zeroth_zlib ${zlib_sources})

file(GLOB_RECURSE zstd_sources ${ZEROTH_BUNDLE}/src/zstd/*.c)
bundled_library(zeroth_zstd ${zstd_sources})
target_compile_definitions(zeroth_zstd PRIVATE ZSTD_DISABLE_ASM)

file(GLOB pcre2_sources ${ZEROTH_BUNDLE}/src/pcre2/*.c)
list(FILTER pcre2_sources EXCLUDE REGEX "_(jit_match|jit_misc|printint|ucptables)\\.c$")  # included by others
bundled_library(zeroth_pcre2 ${pcre2_sources})
target_compile_definitions(zeroth_pcre2 PRIVATE
  HAVE_CONFIG_H PCRE2_CODE_UNIT_WIDTH=8 SUPPORT_UNICODE SUPPORT_JIT PCRE2_STATIC)

# CONFIGURED stands for the results of its configure script, without which it is portable C.
file(GLOB_RECURSE sodium_sources ${ZEROTH_BUNDLE}/src/sodium/*.c)
bundled_library(zeroth_sodium ${sodium_sources})
target_include_directories(zeroth_sodium PRIVATE ${ZEROTH_BUNDLE}/include/sodium)
target_compile_definitions(zeroth_sodium PRIVATE CONFIGURED=1)
