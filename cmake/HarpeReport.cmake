# report.html's script and style: the dashboard's own components and what joins them to a report, as one
# module, made part of src/draw.
set(HARPE_REPORT_SOURCE ${PROJECT_BINARY_DIR}/report_files.c)
file(GLOB HARPE_REPORT_FILES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/web/*.js
     ${PROJECT_SOURCE_DIR}/web/*.css ${PROJECT_SOURCE_DIR}/web/report/*.js)
add_custom_command(OUTPUT ${HARPE_REPORT_SOURCE} VERBATIM
    DEPENDS ${HARPE_REPORT_FILES} ${PROJECT_SOURCE_DIR}/cmake/embed_report.cmake
    COMMAND ${CMAKE_COMMAND} -DWEB=${PROJECT_SOURCE_DIR}/web -DOUTPUT=${HARPE_REPORT_SOURCE}
            -P ${PROJECT_SOURCE_DIR}/cmake/embed_report.cmake
    COMMENT "Embedding the report's script")
target_sources(harpe_draw PRIVATE ${HARPE_REPORT_SOURCE})
