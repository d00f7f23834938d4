# libordo_lab_cuda.so: what blocks need on a device in addition to attention; cuBLASLt is loaded on demand.
if(NOT TARGET ordo_cuda)
    return()
endif()
file(GLOB files CONFIGURE_DEPENDS lab/src/block/cuda/*.cu)
set(module ${PROJECT_BINARY_DIR}/lib/libordo_lab_cuda.so)
set(module_objects)
foreach(file IN LISTS files)
    cmake_path(GET file STEM name)
    set(object ${PROJECT_BINARY_DIR}/lab_cuda/${name}.o)
    add_custom_command(OUTPUT ${object}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/lab_cuda
        COMMAND ${ORDO_CHECK_PTXAS} ${object} ${ORDO_NVCC} ${ORDO_NVCC_FLAGS} -I${PROJECT_SOURCE_DIR}/lab/include
            -I${PROJECT_SOURCE_DIR}/lab/src -MD -MT ${object} -MF ${object}.d -c ${file} -o ${object}
        DEPENDS ${file} DEPFILE ${object}.d COMMENT "nvcc lab/src/block/cuda/${name}.cu" VERBATIM)
    list(APPEND module_objects ${object})
endforeach()
# Kernels of products beside keep bits, and of attention that makes some inside, are libordo's: how they are launched,
# and what is around them.
foreach(name sm90/gemm/run sm90/gemm/sections sm90/forward/run sm90/backward/rows support/launch support/repair_backward
        support/repair_forward support/sequences support/statistics support/tiles support/unseen)
    set(object ${ORDO_CUDA_OBJECTS})
    list(FILTER object INCLUDE REGEX "/${name}\\.cu\\.o$")
    list(APPEND module_objects ${object})
endforeach()
add_custom_command(OUTPUT ${module}
    COMMAND ${ORDO_NVCC} ${ORDO_NVCC_LINK} ${module_objects} -o ${module} -ldl
    DEPENDS ${module_objects} COMMENT "nvcc lib/libordo_lab_cuda.so" VERBATIM)
add_custom_target(ordo_lab_cuda ALL DEPENDS ${module})
install(FILES ${module} DESTINATION ${CMAKE_INSTALL_LIBDIR})
list(APPEND products ordo_lab_cuda)
