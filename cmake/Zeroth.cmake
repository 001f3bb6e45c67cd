# zeroth_library(base SOURCES error.cpp LINKS fmt::fmt [TORCH tensor|nn] [INTERNAL])   one folder, what it may link, and
#                       what it sees of LibTorch; INTERNAL belongs to one program, others are installed with their
#                       folder's headers. A folder's second library, which sees no torch, has a longer name.
# zeroth_program(zeroth SOURCES main.cpp LINKS launcher [TORCH tensor|nn])  -> build/bin/zeroth
# zeroth_test(base SOURCES error_test.cpp LINKS zeroth_base [TORCH tensor|nn])  -> build/bin/tests/base_test, one ctest
#                       case
# zeroth_load(base ONE|TWO|WAITS [SECONDS])     what a ctest case takes of the machine, and for how long

# What a target sees of LibTorch is nothing (std), tensors (tensor), or torch::nn and so all of it (nn). Each has a
# precompiled header of what nearly all of its sources include, on which no source may rely: a source pays again for
# every template in such a header, so that the least that does is the fastest. Tests, whose own code is never optimised,
# have their own, as a header fits the flags alone that it was made with.
function(zeroth_precompiled_header name torch)
  add_library(${name} OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled/empty.cpp)
  target_link_libraries(${name} PUBLIC fmt::fmt zeroth_warnings $<$<NOT:$<STREQUAL:${torch},std>>:libtorch>)
  target_precompile_headers(${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/precompiled/${torch}.h ${ARGN})
endfunction()

foreach(torch std tensor nn)
  zeroth_precompiled_header(zeroth_pch_${torch} ${torch})
  if(ZEROTH_TESTS)
    zeroth_precompiled_header(zeroth_test_pch_${torch} ${torch} <doctest/doctest.h>)
    target_link_libraries(zeroth_test_pch_${torch} PUBLIC doctest::doctest)
    target_compile_options(zeroth_test_pch_${torch} PRIVATE -O0)
  endif()
endforeach()

# As for any target, but not optimised, and eight sources compiled as one, which pay for the templates of headers once.
function(zeroth_test_defaults target)
  zeroth_common_defaults(${target} zeroth_test_pch ${ARGN})
  target_compile_options(${target} PRIVATE -O0)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${ZEROTH_UNITY_TESTS})
endfunction()

# zeroth_target_defaults(TARGET [tensor|nn])
function(zeroth_target_defaults target)
  zeroth_common_defaults(${target} zeroth_pch ${ARGN})
endfunction()

function(zeroth_common_defaults target precompiled)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:zeroth_warnings> PUBLIC fmt::fmt)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<INSTALL_INTERFACE:include/zeroth>)
  set(torch std)
  if(ARGN)
    set(torch ${ARGN})
    target_link_libraries(${target} PUBLIC libtorch)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${precompiled}_${torch})
endfunction()

function(zeroth_library folder)
  cmake_parse_arguments(ARG "INTERNAL" "TORCH" "SOURCES;LINKS" ${ARGN})
  add_library(zeroth_${folder} STATIC ${ARG_SOURCES})
  add_library(Zeroth::${folder} ALIAS zeroth_${folder})
  target_link_libraries(zeroth_${folder} PUBLIC ${ARG_LINKS})
  zeroth_target_defaults(zeroth_${folder} ${ARG_TORCH})
  if(NOT ARG_INTERNAL)
    set_target_properties(zeroth_${folder} PROPERTIES EXPORT_NAME ${folder})
    install(TARGETS zeroth_${folder} EXPORT Zeroth ARCHIVE DESTINATION lib)
    cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder_name)
    install(DIRECTORY . DESTINATION include/zeroth/${folder_name}
            FILES_MATCHING PATTERN "*.h" REGEX "/(cpu|gpu|presets)$" EXCLUDE)
  endif()
endfunction()

function(zeroth_program name)
  cmake_parse_arguments(ARG "" "TORCH" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS})
  zeroth_target_defaults(${name} ${ARG_TORCH})
  zeroth_portable(${name})
endfunction()

# For what may run on other machines: it holds fmt, and needs no library that it does not use.
function(zeroth_portable target)
  if(TARGET zeroth_fmt_inside)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:zeroth_fmt_inside>)
  endif()
  target_link_options(${target} PRIVATE -Wl,--as-needed)
endfunction()

# What tests take of two processors, which are eight parts (`ctest -j 8`, tools/test): ONE keeps a processor busy (three
# parts), TWO has two ranks that do, in turn or at once (five: one of the first kind fits beside it), and what WAITS
# most of its time, for limits of time and for processes, takes one. What takes most begins first, with what waits, and
# the rest fills up; long ones before short ones, which ctest learns by itself, but not before a first run.
function(zeroth_load test load)
  set(ONE 3)
  set(TWO 5)
  set(WAITS 1)
  set(seconds_ONE 0)
  set(seconds_TWO 2000)
  set(seconds_WAITS 1000)
  math(EXPR cost "${seconds_${load}} + ${ARGN}0 / 10")
  set_tests_properties(${test} PROPERTIES PROCESSORS ${${load}} COST ${cost})
endfunction()

# LEVELS names sources whose cases run once more at each CPU level below the processor's own; others are skipped. The
# cases of the sources in TWO and in WAITS are ctest cases of their own (FOLDER_two, FOLDER_waits), with such loads.
function(zeroth_test folder)
  cmake_parse_arguments(ARG "NEIGHBOURS" "TORCH" "SOURCES;LINKS;LEVELS;TWO;WAITS" ${ARGN})
  set(name ${folder}_test)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} zeroth_test_main)
  zeroth_test_defaults(${name} ${ARG_TORCH})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests)
  target_compile_definitions(${name} PRIVATE
    ZEROTH_SOURCE_DIR="${CMAKE_SOURCE_DIR}" ZEROTH_BIN_DIR="${CMAKE_BINARY_DIR}/bin")
  set(cases "")
  if(ARG_NEIGHBOURS)
    set(cases --test-suite-exclude=neighbours)
    add_test(NAME ${folder}_neighbours COMMAND ${name} --test-suite=neighbours)
    set_tests_properties(${folder}_neighbours PROPERTIES
      TIMEOUT 600 SKIP_REGULAR_EXPRESSION "skipped: only root can become nobody")
    zeroth_load(${folder}_neighbours ONE)
  endif()
  set(apart "")
  foreach(load TWO WAITS)
    if(ARG_${load})
      string(TOLOWER ${folder}_${load} part)
      list(TRANSFORM ARG_${load} PREPEND "*/" OUTPUT_VARIABLE sources)
      list(APPEND apart ${sources})
      list(JOIN sources "," sources)
      add_test(NAME ${part} COMMAND ${name} --source-file=${sources} ${cases})
      set_tests_properties(${part} PROPERTIES TIMEOUT 1800)
      zeroth_load(${part} ${load})
    endif()
  endforeach()
  if(apart)
    list(JOIN apart "," apart)
    list(APPEND cases --source-file-exclude=${apart})
  endif()
  add_test(NAME ${folder} COMMAND ${name} ${cases})
  set_tests_properties(${folder} PROPERTIES TIMEOUT 1800)
  zeroth_load(${folder} ONE)
  if(ARG_LEVELS)
    list(JOIN ARG_LEVELS "," sources)
    foreach(level plain avx2 avx512 avx512_bf16)
      add_test(NAME ${folder}_${level} COMMAND
               ${CMAKE_SOURCE_DIR}/tools/at_cpu_level --below ${level} $<TARGET_FILE:${name}> --source-file=${sources})
      set_tests_properties(${folder}_${level} PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77)
      zeroth_load(${folder}_${level} ONE)
    endforeach()
  endif()
endfunction()
