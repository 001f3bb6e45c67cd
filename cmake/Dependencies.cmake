# Third-party packages as targets, from the system or, for machines without network, from a folder that tools/bundle
# made. Their headers are SYSTEM: our warnings do not reach them.
find_package(Threads REQUIRED)
if(ZEROTH_BUNDLE)
  include(Bundle)
else()
  find_package(fmt REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(Boost REQUIRED)
  find_package(doctest REQUIRED)

  find_library(ZEROTH_PCRE2 pcre2-8 REQUIRED)
  add_library(zeroth_pcre2 INTERFACE)
  target_link_libraries(zeroth_pcre2 INTERFACE ${ZEROTH_PCRE2})

  find_library(ZEROTH_UTF8PROC utf8proc REQUIRED)
  add_library(zeroth_utf8proc INTERFACE)
  target_link_libraries(zeroth_utf8proc INTERFACE ${ZEROTH_UTF8PROC})
endif()

include(LibTorch)
include(Cuda)
