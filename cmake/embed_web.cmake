# SPDX-License-Identifier: Apache-2.0
# Writes the files of web/ as a C source: cmake -DWEB=web -DOUTPUT=web_files.c -DGZIP=/bin/gzip -P.
# gzip -n omits name and date, so that the same files always produce the same program.
set(types html "text/html\; charset=utf-8" css "text/css\; charset=utf-8"
    js "text/javascript\; charset=utf-8" svg "image/svg+xml")
file(GLOB files LIST_DIRECTORIES false ${WEB}/*.html ${WEB}/*.css ${WEB}/*.js ${WEB}/*.svg)
set(arrays "")
set(rows "")
set(number 0)
foreach(file IN LISTS files)
    cmake_path(GET file FILENAME name)
    cmake_path(GET file EXTENSION LAST_ONLY extension)
    string(SUBSTRING ${extension} 1 -1 extension)
    list(FIND types ${extension} index)
    math(EXPR index "${index} + 1")
    list(GET types ${index} type)
    set(path /dashboard/${name})
    if(name STREQUAL "index.html")
        set(path /)
    endif()
    execute_process(COMMAND ${GZIP} -9nc ${file} OUTPUT_FILE ${OUTPUT}.gz COMMAND_ERROR_IS_FATAL ANY)
    file(READ ${OUTPUT}.gz bytes HEX)
    file(SIZE ${file} length)
    file(SHA256 ${file} digest)
    string(SUBSTRING ${digest} 0 16 digest)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(APPEND arrays "static const unsigned char file_${number}[] = {${bytes}};\n")
    string(APPEND rows "    {\"${path}\", \"${type}\", \"\\\"${digest}\\\"\", file_${number}, "
                       "sizeof file_${number}, ${length}},\n")
    math(EXPR number "${number} + 1")
endforeach()
file(REMOVE ${OUTPUT}.gz)
file(WRITE ${OUTPUT} "/* Made from web/ by cmake/embed_web.cmake. */\n#include \"server/api/api_internal.h\"\n\n"
     "${arrays}\nconst harpe_page_file harpe_page_files[] = {\n${rows}    {0},\n};\n")
