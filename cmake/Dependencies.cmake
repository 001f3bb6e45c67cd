# Third-party packages as imported targets. Their headers are SYSTEM: our warnings do not reach them.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost REQUIRED)
find_package(doctest REQUIRED)

find_library(ZEROTH_PCRE2 pcre2-8 REQUIRED)
add_library(zeroth_pcre2 INTERFACE)
target_link_libraries(zeroth_pcre2 INTERFACE ${ZEROTH_PCRE2})

include(LibTorch)
include(Cuda)
