# Build rules shared by all rooms: dyt_rooms, dyt_library, dyt_program, dyt_test.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Debug)
endif()

find_package(Threads REQUIRED)
find_program(DYT_CCACHE ccache)
if(DYT_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${DYT_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${DYT_CCACHE})
endif()

add_library(dyt_flags INTERFACE)
target_compile_definitions(dyt_flags INTERFACE _GNU_SOURCE)
target_compile_options(dyt_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wvla
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>
  "$<$<COMPILE_LANGUAGE:C>:SHELL:-include ${PROJECT_SOURCE_DIR}/core/base/banned.h>"
  -fno-math-errno
  -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
target_link_libraries(dyt_flags INTERFACE Threads::Threads)
if(DYT_WERROR)
  target_compile_options(dyt_flags INTERFACE -Werror)
endif()
if(DYT_TEST_HOOKS)
  target_compile_definitions(dyt_flags INTERFACE DYT_TEST_HOOKS=1)
endif()
if(DYT_FUZZ)
  target_compile_options(dyt_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(dyt_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(DYT_COVERAGE)
  target_compile_options(dyt_flags INTERFACE --coverage)
  target_link_options(dyt_flags INTERFACE --coverage)
endif()
if(DYT_SANITIZE)
  target_compile_options(dyt_flags INTERFACE -fsanitize=${DYT_SANITIZE}
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(dyt_flags INTERFACE -fsanitize=${DYT_SANITIZE})
endif()

# dyt_rooms(PARENT room...): add each room that is there. A deleted folder is a
# smaller build, never a broken one.
function(dyt_rooms parent)
  foreach(room ${ARGN})
    if(EXISTS ${PROJECT_SOURCE_DIR}/${parent}/${room}/CMakeLists.txt)
      add_subdirectory(${PROJECT_SOURCE_DIR}/${parent}/${room}
                       ${CMAKE_BINARY_DIR}/rooms/${parent}/${room})
    endif()
  endforeach()
endfunction()

# Include roots. Rooms of core see core/; roles see core/ and their own folder;
# a bridge folder sees core/ and bridge/; cli, lib, tests and bench see all.
set(DYT_CORE_INCLUDES ${PROJECT_SOURCE_DIR}/core
                      ${PROJECT_SOURCE_DIR}/core/include)
set(DYT_ALL_INCLUDES ${DYT_CORE_INCLUDES} ${PROJECT_SOURCE_DIR}
                     ${PROJECT_SOURCE_DIR}/bridge
                     ${PROJECT_SOURCE_DIR}/tests/support)

# dyt_library(NAME SOURCES f.c... [USES room...] [LIBS external...])
function(dyt_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LIBS" ${ARGN})
  add_library(dyt_${name} STATIC ${ARG_SOURCES})
  target_include_directories(dyt_${name} PUBLIC ${DYT_CORE_INCLUDES})
  file(RELATIVE_PATH here ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(NOT here MATCHES "^core/")
    target_include_directories(dyt_${name} PRIVATE ${PROJECT_SOURCE_DIR}
                                                   ${PROJECT_SOURCE_DIR}/bridge)
  endif()
  target_link_libraries(dyt_${name} PUBLIC dyt_flags)
  foreach(room ${ARG_USES})
    target_link_libraries(dyt_${name} PUBLIC dyt_${room})
  endforeach()
  target_link_libraries(dyt_${name} PUBLIC ${ARG_LIBS})
endfunction()

# dyt_program(NAME SOURCES f.c... [USES room...] [LIBS external...] [DIR out])
function(dyt_program name)
  cmake_parse_arguments(ARG "" "DIR" "SOURCES;USES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${DYT_ALL_INCLUDES})
  target_link_libraries(${name} PRIVATE dyt_flags)
  foreach(room ${ARG_USES})
    target_link_libraries(${name} PRIVATE dyt_${room})
  endforeach()
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} m)
  if(ARG_DIR)
    set_target_properties(${name} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${ARG_DIR})
  endif()
endfunction()

# dyt_test(NAME file.c [LABELS l...] [USES room...] [LIBS external...]
#          [TIMEOUT seconds] [WRAP libc-function...])
# NAME is dotted: unit.core.layout.box.  Label = first word, unless given.
function(dyt_test name file)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABELS;USES;LIBS;WRAP" ${ARGN})
  string(REGEX REPLACE "\\..*$" "" first ${name})
  if(NOT ARG_LABELS)
    set(ARG_LABELS ${first})
  endif()
  # Only for what hangs: full counts, on a slow machine with other work.
  if(NOT ARG_TIMEOUT OR ARG_TIMEOUT LESS 600)
    set(ARG_TIMEOUT 600)
  endif()
  if(DYT_SANITIZE) # several times slower
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 6")
  endif()
  dyt_program(test.${name} SOURCES ${file} USES ${ARG_USES}
              LIBS ${ARG_LIBS} cmocka DIR tests)
  foreach(function ${ARG_WRAP})
    target_link_options(test.${name} PRIVATE -Wl,--wrap=${function})
  endforeach()
  add_test(NAME ${name} COMMAND test.${name}
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}"
                       TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()
