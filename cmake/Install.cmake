# `cmake --install`: programs, the libraries that they load, presets, and the package Zeroth, so that a program of one's
# own needs
#   find_package(Zeroth REQUIRED)
#   target_link_libraries(program PRIVATE Zeroth::engine)
include(CMakePackageConfigHelpers)
set(package lib/cmake/Zeroth)

install(TARGETS zeroth finetune RUNTIME DESTINATION bin)
install(TARGETS zeroth_pcre2 zeroth_sodium zeroth_utf8proc zeroth_zlib zeroth_zstd
  EXPORT Zeroth ARCHIVE DESTINATION lib)
if(ZEROTH_BUNDLE)
  install(TARGETS zeroth_fmt EXPORT Zeroth ARCHIVE DESTINATION lib)
  install(DIRECTORY ${ZEROTH_BUNDLE}/include/fmt ${ZEROTH_BUNDLE}/include/nlohmann DESTINATION include/zeroth/bundled)
endif()
if(ZEROTH_HAVE_CUDA)
  install(TARGETS zeroth_gpu LIBRARY DESTINATION lib)
endif()
if(ZEROTH_HAVE_ARROW)  # Arrow stays where it is, as LibTorch does, and is copied with it
  install(TARGETS zeroth_arrow LIBRARY DESTINATION lib)
  install(FILES ${arrow_libraries} DESTINATION lib/zeroth/arrow COMPONENT LibTorch EXCLUDE_FROM_ALL)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/configs/presets DESTINATION share/zeroth)
foreach(program zeroth finetune)  # one script completes both; a shell looks for it by the program's name
  install(FILES ${CMAKE_SOURCE_DIR}/completions/zeroth.bash
    DESTINATION share/bash-completion/completions RENAME ${program})
endforeach()

set(ZEROTH_TORCH_ROOT ${torch_folder})
string(COMPARE NOTEQUAL "${ZEROTH_BUNDLE}" "" bundled)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ZerothConfig.cmake.in ZerothConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(ZerothConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ZerothConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ZerothConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/LibTorch.cmake DESTINATION ${package})
install(EXPORT Zeroth NAMESPACE Zeroth:: FILE ZerothTargets.cmake DESTINATION ${package})

# LibTorch stays where it is, unless its component is installed too: cmake --install build --component LibTorch
set(libraries "")
if(ZEROTH_HAVE_CUDA)
  set(libraries $<TARGET_FILE:zeroth_gpu>)
endif()
install(CODE "
set(torch_folder [==[${torch_folder}]==])
set(torch_copy ${torch_copy})
set(build [==[${CMAKE_BINARY_DIR}]==])
set(programs $<TARGET_FILE:zeroth> $<TARGET_FILE:finetune>)
set(libraries ${libraries})" ALL_COMPONENTS)
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/InstallLibTorch.cmake ALL_COMPONENTS)
