# Embeds the dashboard into the server: the compressed files of web/. They are plain ES modules that
# need no bundler and load nothing from other servers.
find_program(HARPE_GZIP gzip REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)

file(GLOB HARPE_WEB_FILES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/web/*.html
     ${PROJECT_SOURCE_DIR}/web/*.css ${PROJECT_SOURCE_DIR}/web/*.js ${PROJECT_SOURCE_DIR}/web/*.svg)
set(HARPE_WEB_SOURCE ${PROJECT_BINARY_DIR}/web_files.c)
add_custom_command(OUTPUT ${HARPE_WEB_SOURCE} VERBATIM
    DEPENDS ${HARPE_WEB_FILES} ${PROJECT_SOURCE_DIR}/cmake/embed_web.cmake
    COMMAND ${CMAKE_COMMAND} -DWEB=${PROJECT_SOURCE_DIR}/web -DOUTPUT=${HARPE_WEB_SOURCE}
            -DGZIP=${HARPE_GZIP} -P ${PROJECT_SOURCE_DIR}/cmake/embed_web.cmake
    COMMENT "Embedding the dashboard")
target_sources(harpe_server PRIVATE ${HARPE_WEB_SOURCE})
target_link_libraries(harpe_server PUBLIC PkgConfig::ZLIB)
