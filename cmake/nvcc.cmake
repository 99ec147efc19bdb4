# The toolkit's compiler: every .cu file of ours is compiled once, for every
# architecture from sm_70 to sm_120 that the toolkit knows, and as PTX of the
# newest for those to come.
#
#   DYT_NVCC          the compiler, or …-NOTFOUND
#   DYT_CUDA_INCLUDE  the toolkit's headers (cuda.h), or …-NOTFOUND
#   DYT_CUDART        the runtime's static library, or …-NOTFOUND
#   DYT_CUDA_ARCHS    "all", or a list: "90", "80;90"
if(DYT_CUDA STREQUAL "off")
  set(DYT_NVCC DYT_NVCC-NOTFOUND)
  set(DYT_CUDA_INCLUDE DYT_CUDA_INCLUDE-NOTFOUND)
  set(DYT_CUDART DYT_CUDART-NOTFOUND)
else()
  find_program(DYT_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  if(DYT_NVCC) # a link to it is no neighbour of its headers
    get_filename_component(dyt_toolkit ${DYT_NVCC} REALPATH)
    get_filename_component(dyt_toolkit ${dyt_toolkit}/../.. ABSOLUTE)
  endif()
  find_path(DYT_CUDA_INCLUDE cuda.h
            HINTS $ENV{CUDA_HOME}/include ${dyt_toolkit}/include
                  /usr/local/cuda/include)
  find_library(DYT_CUDART cudart_static
               HINTS $ENV{CUDA_HOME}/lib64 ${dyt_toolkit}/lib64
                     ${dyt_toolkit}/lib /usr/local/cuda/lib64)
  if(DYT_CUDA STREQUAL "on" AND NOT DYT_NVCC)
    message(FATAL_ERROR "DYT_CUDA=on, and there is no nvcc: put it into PATH, "
                        "set CUDA_HOME, or configure with -DDYT_NVCC=/path/to/nvcc")
  endif()
  if(DYT_CUDA STREQUAL "on" AND NOT DYT_CUDA_INCLUDE)
    message(FATAL_ERROR "DYT_CUDA=on, and there is no cuda.h: set CUDA_HOME, or "
                        "configure with -DDYT_CUDA_INCLUDE=/path/to/include")
  endif()
  if(DYT_CUDA STREQUAL "on" AND NOT DYT_CUDART)
    message(FATAL_ERROR "DYT_CUDA=on, and there is no libcudart_static.a: set "
                        "CUDA_HOME, or configure with -DDYT_CUDART=/path/to/it")
  endif()
endif()
set(DYT_CUDA_ARCHS "all" CACHE STRING
    "Architectures that kernels are compiled for: all, or a list as 80;90")

if(DYT_NVCC)
  execute_process(COMMAND ${DYT_NVCC} --list-gpu-arch
                  OUTPUT_VARIABLE dyt_archs RESULT_VARIABLE dyt_nvcc_result)
  string(REGEX MATCHALL "[0-9]+" dyt_archs "${dyt_archs}")
  set(dyt_known)
  foreach(arch ${dyt_archs})
    if(arch GREATER_EQUAL 70 AND arch LESS_EQUAL 120)
      list(APPEND dyt_known ${arch})
    endif()
  endforeach()
  list(SORT dyt_known COMPARE NATURAL)
  list(REMOVE_DUPLICATES dyt_known)
  if(NOT dyt_nvcc_result EQUAL 0 OR NOT dyt_known)
    message(FATAL_ERROR "${DYT_NVCC} --list-gpu-arch names no architecture from "
                        "sm_70: DYT_NVCC wants the nvcc of CUDA 12 or newer, "
                        "or -DDYT_CUDA=off")
  endif()
  if(NOT DYT_CUDA_ARCHS STREQUAL "all")
    foreach(arch ${DYT_CUDA_ARCHS})
      if(NOT arch IN_LIST dyt_known)
        message(FATAL_ERROR "DYT_CUDA_ARCHS: ${DYT_NVCC} compiles nothing for "
                            "sm_${arch}, only for ${dyt_known}")
      endif()
    endforeach()
    set(dyt_known ${DYT_CUDA_ARCHS})
    list(SORT dyt_known COMPARE NATURAL)
  endif()
  list(JOIN dyt_known "," dyt_arch_numbers)
  set(dyt_nvcc_archs)
  foreach(arch ${dyt_known})
    list(APPEND dyt_nvcc_archs -gencode arch=compute_${arch},code=sm_${arch})
    set(dyt_newest ${arch})
  endforeach()
  list(APPEND dyt_nvcc_archs
       -gencode arch=compute_${dyt_newest},code=compute_${dyt_newest})
endif()

# dyt_nvcc(OUT SOURCES file.cu...): objects of the files, for a dyt_library of
# the same folder.  What ptxas says of registers, spills and shared memory lies
# beside each object, and in the global property DYT_PTXAS of those files that
# are the product's (under bridge/).
function(dyt_nvcc out)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  set(roots)
  foreach(root ${DYT_CORE_INCLUDES} ${PROJECT_SOURCE_DIR}
               ${PROJECT_SOURCE_DIR}/bridge ${PROJECT_SOURCE_DIR}/tests)
    list(APPEND roots -I${root})
  endforeach()
  foreach(source ${ARG_SOURCES})
    get_filename_component(source ${source} ABSOLUTE)
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    # Asked with -v, ptxas speaks on stderr: kept, and shown when it fails.
    add_custom_command(
      OUTPUT ${object} BYPRODUCTS ${object}.ptxas
      COMMAND sh -c "\"$@\" 2>'${object}.ptxas' || { cat '${object}.ptxas' >&2; exit 1; }"
              nvcc ${DYT_CCACHE} ${DYT_NVCC} -std=c++17 -O3 -Werror all-warnings
              -Xptxas -v -Xcompiler -fPIC,-fvisibility=hidden ${roots}
              ${dyt_nvcc_archs} -MD -MF ${object}.d -c -o ${object} ${source}
      DEPENDS ${source} DEPFILE ${object}.d
      COMMENT "Building CUDA object ${name}.o" VERBATIM)
    list(APPEND objects ${object})
    if(source MATCHES "^${PROJECT_SOURCE_DIR}/bridge/")
      set_property(GLOBAL APPEND PROPERTY DYT_PTXAS ${source} ${object}.ptxas)
    endif()
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON
                                                    GENERATED ON)
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
