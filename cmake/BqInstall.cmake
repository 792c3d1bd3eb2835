# Installation: libraries, headers, the command with its manual pages and shell
# completions, a pkg-config file and a CMake package (babelqueue::babelqueue).
include(CMakePackageConfigHelpers)

set(_bq_targets "")
foreach(_bq_target babelqueue babelqueue_static)
  if(TARGET ${_bq_target})
    list(APPEND _bq_targets ${_bq_target})
  endif()
endforeach()

install(TARGETS ${_bq_targets} EXPORT babelqueue
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/babelqueue" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md"
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
# The README's links lead from there to the guides, the examples and nowhere else.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples" DESTINATION ${CMAKE_INSTALL_DOCDIR}
        FILES_MATCHING PATTERN "*.md" PATTERN "*.c" PATTERN "*.py" PATTERN "*.sh" PATTERN "check" EXCLUDE)

if(TARGET bq)
  install(TARGETS bq RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # Made by the command itself during the build (cli/CMakeLists.txt).
  install(DIRECTORY "${PROJECT_BINARY_DIR}/man/" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
          OPTIONAL FILES_MATCHING PATTERN "*.1")
  install(FILES "${PROJECT_BINARY_DIR}/completions/bq.bash" OPTIONAL
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME bq)
  install(FILES "${PROJECT_BINARY_DIR}/completions/_bq" OPTIONAL
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES "${PROJECT_BINARY_DIR}/completions/bq.fish" OPTIONAL
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

get_property(_bq_requires GLOBAL PROPERTY BQ_PC_REQUIRES)
list(TRANSFORM _bq_requires REPLACE "([<>]?=)" " \\1 ")
list(JOIN _bq_requires ", " BQ_PC_REQUIRES_PRIVATE)
# Relative to the file itself, so that an installed tree can be moved.
file(RELATIVE_PATH BQ_PC_PREFIX "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
string(REGEX REPLACE "/$" "" BQ_PC_PREFIX "${BQ_PC_PREFIX}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/babelqueue.pc.in" "${PROJECT_BINARY_DIR}/babelqueue.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/babelqueue.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The static library names the imported targets that it was built with; the
# package file finds them again under the same names.
set(BQ_PACKAGE_MODULES "")
get_property(_bq_libs GLOBAL PROPERTY BQ_LINK_LIBS)
foreach(_bq_lib ${_bq_libs})
  if(_bq_lib MATCHES "^PkgConfig::(BQ_PKG_(.*))$")
    set(_bq_prefix "${CMAKE_MATCH_1}")
    get_property(_bq_modules GLOBAL PROPERTY BQ_MODULES_${CMAKE_MATCH_2})
    list(JOIN _bq_modules " " _bq_modules)
    string(APPEND BQ_PACKAGE_MODULES "  pkg_check_modules(${_bq_prefix} REQUIRED QUIET IMPORTED_TARGET ${_bq_modules})\n")
  endif()
endforeach()
set(_bq_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/babelqueue)
install(EXPORT babelqueue NAMESPACE babelqueue:: DESTINATION ${_bq_cmake_dir} FILE babelqueueTargets.cmake)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/babelqueueConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/babelqueueConfig.cmake" INSTALL_DESTINATION ${_bq_cmake_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/babelqueueConfigVersion.cmake" COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/babelqueueConfig.cmake" "${PROJECT_BINARY_DIR}/babelqueueConfigVersion.cmake"
        DESTINATION ${_bq_cmake_dir})
