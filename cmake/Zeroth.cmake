# zeroth_library(base SOURCES error.cpp LINKS fmt::fmt [TORCH])   one folder, what it may link, whether it sees torch
# zeroth_program(zeroth SOURCES main.cpp LINKS launcher [TORCH])  -> build/bin/zeroth
# zeroth_test(base SOURCES error_test.cpp LINKS zeroth_base [TORCH]) -> build/bin/tests/base_test, one ctest case
function(zeroth_target_defaults target torch)
  target_link_libraries(${target} PRIVATE zeroth_warnings)
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR})
  if(torch)
    target_link_libraries(${target} PUBLIC libtorch fmt::fmt)
    target_precompile_headers(${target} REUSE_FROM zeroth_torch_pch)
  endif()
endfunction()

function(zeroth_library folder)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LINKS" ${ARGN})
  add_library(zeroth_${folder} STATIC ${ARG_SOURCES})
  target_link_libraries(zeroth_${folder} PUBLIC ${ARG_LINKS})
  zeroth_target_defaults(zeroth_${folder} "${ARG_TORCH}")
endfunction()

function(zeroth_program name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS})
  zeroth_target_defaults(${name} "${ARG_TORCH}")
endfunction()

function(zeroth_test folder)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;LINKS" ${ARGN})
  set(name ${folder}_test)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} zeroth_test_main)
  zeroth_target_defaults(${name} "${ARG_TORCH}")
  if(NOT ARG_TORCH)  # with torch the precompiled header dictates the flags
    target_compile_options(${name} PRIVATE -O0)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests)
  target_compile_definitions(${name} PRIVATE
    ZEROTH_SOURCE_DIR="${CMAKE_SOURCE_DIR}" ZEROTH_BIN_DIR="${CMAKE_BINARY_DIR}/bin")
  add_test(NAME ${folder} COMMAND ${name})
  set_tests_properties(${folder} PROPERTIES TIMEOUT 600)
endfunction()
