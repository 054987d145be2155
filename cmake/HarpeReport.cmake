# Embeds the script and the style of report.html into src/draw: the components of the dashboard and
# the code that connects them with a report, joined into one module.
set(HARPE_REPORT_SOURCE ${PROJECT_BINARY_DIR}/report_files.c)
file(GLOB HARPE_REPORT_FILES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/web/*.js
     ${PROJECT_SOURCE_DIR}/web/*.css ${PROJECT_SOURCE_DIR}/web/report/*.js
     ${PROJECT_SOURCE_DIR}/web/report/*.css)
add_custom_command(OUTPUT ${HARPE_REPORT_SOURCE} VERBATIM
    DEPENDS ${HARPE_REPORT_FILES} ${PROJECT_SOURCE_DIR}/cmake/embed_report.cmake
    COMMAND ${CMAKE_COMMAND} -DWEB=${PROJECT_SOURCE_DIR}/web -DOUTPUT=${HARPE_REPORT_SOURCE}
            -P ${PROJECT_SOURCE_DIR}/cmake/embed_report.cmake
    COMMENT "Embedding the report's script")
target_sources(harpe_draw PRIVATE ${HARPE_REPORT_SOURCE})
