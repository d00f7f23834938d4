# What `make install` puts where, and how others find it: find_package(ordo) and pkg-config.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ordo)
set(lab_targets)
set(lab_package)
if(ORDO_LAB)
    set(lab_targets ordo_lab ordo_lab_static)
    set(lab_package ordo_lab)
    install(DIRECTORY lab/include/ordo DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
install(TARGETS ordo ordo_static ${lab_targets} EXPORT ordo
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/ordo DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${machines} DESTINATION ${CMAKE_INSTALL_DATADIR}/ordo/machines)

# The exported targets know their libraries by plain name (m, dl, pthread), so they need no
# find_dependency and can serve as the package's config file themselves.
install(EXPORT ordo NAMESPACE ordo:: FILE ordo-config.cmake DESTINATION ${package_dir})
# docs/guide/bits.md: until 1.0 a minor release may change the API, as a major one may later.
set(compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(compatibility SameMinorVersion)
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/ordo-config-version.cmake
    COMPATIBILITY ${compatibility})
install(FILES ${PROJECT_BINARY_DIR}/generated/ordo-config-version.cmake DESTINATION ${package_dir})

# pkg-config finds the prefix from its own place, so that an installed tree can be moved.
file(RELATIVE_PATH to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
foreach(package ordo ${lab_package})
    configure_file(tools/${package}.pc.in ${PROJECT_BINARY_DIR}/generated/${package}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/generated/${package}.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
