# libordo_lab, which links libordo: docs/adr/0034-the-laboratory-is-a-library.md.
set(lab_objects)
foreach(folder block io model price sim)
    file(GLOB files CONFIGURE_DEPENDS lab/src/${folder}/*.c)
    add_library(ordo_lab_${folder} OBJECT ${files})
    target_include_directories(ordo_lab_${folder} PRIVATE include lab/include src lab/src)
    target_compile_definitions(ordo_lab_${folder} PRIVATE ORDO_BUILDING)
    list(APPEND lab_objects $<TARGET_OBJECTS:ordo_lab_${folder}>)
endforeach()
target_compile_options(ordo_lab_block PRIVATE $<$<CONFIG:Release>:-O3>) # products on the host
if(ORDO_FUZZ)
    target_compile_options(ordo_lab_io PRIVATE ${fuzz_loops})
endif()

add_library(ordo_lab SHARED ${lab_objects})
target_link_libraries(ordo_lab PUBLIC ordo)
add_library(ordo_lab_static STATIC ${lab_objects})
target_link_libraries(ordo_lab_static PUBLIC ordo_static)
set_target_properties(ordo_lab_static PROPERTIES OUTPUT_NAME ordo_lab)
set_target_properties(ordo_lab PROPERTIES # in the folder of libordo, wherever that is
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN")
if(NOT ORDO_SANITIZE) # whose runtime is in the program
    target_link_options(ordo_lab PRIVATE -Wl,-z,defs)
endif()
ordo_library(ordo_lab lab/include)
ordo_library(ordo_lab_static lab/include)
list(APPEND products ordo_lab ordo_lab_static)
