# Sets how every file of the project is compiled: language, warnings, sanitizers, hardening. All
# targets link harpe_compiler, directly or through harpe_core.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(harpe_compiler INTERFACE)
target_compile_definitions(harpe_compiler INTERFACE _GNU_SOURCE)
target_include_directories(harpe_compiler INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
target_compile_options(harpe_compiler INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Wformat=2 $<$<BOOL:${HARPE_WERROR}>:-Werror>
    # The same digits on every machine: a product and a sum are not joined into one operation.
    -ffp-contract=off)

if(HARPE_SANITIZE)
    target_compile_options(harpe_compiler INTERFACE -fsanitize=${HARPE_SANITIZE}
        -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(harpe_compiler INTERFACE -fsanitize=${HARPE_SANITIZE}
        -fno-sanitize-recover=all)
else()
    target_compile_options(harpe_compiler INTERFACE
        $<$<CONFIG:Release,RelWithDebInfo>:-fstack-protector-strong>)
    target_compile_definitions(harpe_compiler INTERFACE
        $<$<CONFIG:Release,RelWithDebInfo>:_FORTIFY_SOURCE=2>)
    target_link_options(harpe_compiler INTERFACE
        $<$<CONFIG:Release,RelWithDebInfo>:LINKER:-z,relro,-z,now>)
endif()
