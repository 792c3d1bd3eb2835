# Language level, warnings and sanitizers, gathered in one interface target that
# every target of ours links privately: a project that embeds us keeps its own flags.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_package(Threads REQUIRED)

add_library(bq_flags INTERFACE)
target_compile_options(bq_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wvla -Wstrict-prototypes -Wmissing-prototypes
  -Wpointer-arith -Wwrite-strings -Wformat=2 -Wno-format-nonliteral)
# The sources use POSIX 2008 and a few Linux calls (memfd, eventfd, pipe2); the
# public headers need neither.
target_compile_definitions(bq_flags INTERFACE _GNU_SOURCE)

if(BQ_WERROR)
  target_compile_options(bq_flags INTERFACE -Werror)
endif()

if(BQ_SANITIZE)
  set(_bq_san -fsanitize=${BQ_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(bq_flags INTERFACE ${_bq_san})
  target_link_options(bq_flags INTERFACE ${_bq_san})
endif()

if(BQ_BUILD_FUZZERS)
  if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "BQ_BUILD_FUZZERS needs clang: configure with the preset 'fuzz' or CC=clang")
  endif()
  target_compile_options(bq_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# A call between two exported functions of ours needs no detour through the PLT.
include(CheckCCompilerFlag)
check_c_compiler_flag(-fno-semantic-interposition BQ_HAS_NO_SEMANTIC_INTERPOSITION)
if(BQ_HAS_NO_SEMANTIC_INTERPOSITION)
  target_compile_options(bq_flags INTERFACE -fno-semantic-interposition)
endif()
