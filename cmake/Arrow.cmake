# ZEROTH_HAVE_ARROW and, when that is true, target `libarrow`: what libzeroth_arrow.so, which reads .parquet and .arrow
# files, compiles and links with. No program links it: it is loaded when such a file is read. Arrow_ROOT names another
# folder than the one of `tools/setup --arrow`, with include/, libarrow.so.N and libparquet.so.N.
set(ZEROTH_HAVE_ARROW FALSE)
if(NOT Arrow_ROOT)
  set(Arrow_ROOT ${CMAKE_SOURCE_DIR}/.deps/arrow)
endif()
file(REAL_PATH ${Arrow_ROOT} arrow_folder)
file(GLOB arrow_libraries ${arrow_folder}/libarrow.so.* ${arrow_folder}/libparquet.so.*)
list(LENGTH arrow_libraries count)
if(count EQUAL 2 AND EXISTS ${arrow_folder}/include/parquet/arrow/reader.h)
  set(ZEROTH_HAVE_ARROW TRUE)
  message(STATUS "Apache Arrow: ${arrow_folder}")
  add_library(libarrow INTERFACE IMPORTED)
  target_include_directories(libarrow SYSTEM INTERFACE ${arrow_folder}/include)
  target_link_libraries(libarrow INTERFACE ${arrow_libraries})
else()
  message(STATUS "Apache Arrow: off, so no .parquet and .arrow files; tools/setup --arrow brings it")
endif()
