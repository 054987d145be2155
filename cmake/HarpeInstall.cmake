# The files that `make install` installs: programs, library, headers, pkg-config file, CMake package,
# man pages, licence and systemd unit. Their directories are those of GNUInstallDirs.
include(CMakePackageConfigHelpers)

set(HARPE_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Harpe)

install(TARGETS libharpe EXPORT HarpeTargets)
if(TARGET harpe)
    install(TARGETS harpe)
    # Nobody calls it by its name: `harpe agent` and the unit start it.
    install(TARGETS harpe_agent_program RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/harpe)
endif()
install(DIRECTORY include/harpe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)

# ---- Python --------------------------------------------------------------------------------

# The Python package is pure Python and finds libharpe relative to its own directory. With a prefix
# below /usr, it goes to the directory of Debian's packages. Otherwise it goes to the directory that
# the system's Python searches below /usr/local: lib/python3.11/dist-packages on Debian 12,
# lib/python3.12/site-packages on other systems.
set(HARPE_PYTHON_DIR "" CACHE STRING "The Python package's place below the prefix; empty: the system Python's")
set(HARPE_PYTHON_ELSEWHERE ${HARPE_PYTHON_DIR})
if(NOT HARPE_PYTHON_DIR)
    find_program(HARPE_SYSTEM_PYTHON3 python3 PATHS /usr/bin NO_DEFAULT_PATH)
    set(HARPE_PYTHON_ELSEWHERE lib/python3/dist-packages)
    if(HARPE_SYSTEM_PYTHON3)
        execute_process(COMMAND ${HARPE_SYSTEM_PYTHON3} -c "import os, site, sys
print('lib/python%d.%d/' % sys.version_info[:2] + os.path.basename(site.getsitepackages()[0]), end='')"
                        OUTPUT_VARIABLE HARPE_PYTHON_ELSEWHERE COMMAND_ERROR_IS_FATAL ANY)
    endif()
endif()
# The prefix is only known at install time.
install(CODE "
    set(HARPE_PYTHON_DIR \"${HARPE_PYTHON_ELSEWHERE}\")
    if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\" AND \"${HARPE_PYTHON_DIR}\" STREQUAL \"\")
        set(HARPE_PYTHON_DIR lib/python3/dist-packages)
    endif()")
install(DIRECTORY python/harpe DESTINATION "\${HARPE_PYTHON_DIR}"
        FILES_MATCHING PATTERN *.py PATTERN py.typed PATTERN __pycache__ EXCLUDE)

# ---- pkg-config and CMake ------------------------------------------------------------------

# This file is written at install time, so that `cmake --install --prefix` has an effect.
set(HARPE_PC_IN ${PROJECT_SOURCE_DIR}/packaging/harpe.pc.in)
set(HARPE_PC_OUT ${PROJECT_BINARY_DIR}/packaging/harpe.pc)
install(CODE "
    set(PROJECT_DESCRIPTION \"${PROJECT_DESCRIPTION}\")
    set(PROJECT_VERSION \"${PROJECT_VERSION}\")
    set(CMAKE_INSTALL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
    set(CMAKE_INSTALL_INCLUDEDIR \"${CMAKE_INSTALL_INCLUDEDIR}\")
    configure_file(\"${HARPE_PC_IN}\" \"${HARPE_PC_OUT}\" @ONLY)")
install(FILES ${HARPE_PC_OUT} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

configure_package_config_file(packaging/HarpeConfig.cmake.in
    ${PROJECT_BINARY_DIR}/packaging/HarpeConfig.cmake INSTALL_DESTINATION ${HARPE_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/packaging/HarpeConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/packaging/HarpeConfig.cmake
              ${PROJECT_BINARY_DIR}/packaging/HarpeConfigVersion.cmake
        DESTINATION ${HARPE_PACKAGE_DIR})
install(EXPORT HarpeTargets NAMESPACE Harpe:: DESTINATION ${HARPE_PACKAGE_DIR})

# ---- Service -------------------------------------------------------------------------------

# This file is also written at install time, because the unit contains the path of the program. With
# every prefix it reads /etc/harpe/serve.conf. That file belongs to the administrator, so only an
# example is installed.
if(TARGET harpe)
    set(HARPE_UNIT_OUT ${PROJECT_BINARY_DIR}/packaging/harpe-serve.service)
    install(CODE "
        set(HARPE_PROGRAM \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/harpe\")
        set(HARPE_MAKE_TOKEN
            \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATAROOTDIR}/harpe/make-token.sh\")
        configure_file(\"${PROJECT_SOURCE_DIR}/packaging/harpe-serve.service.in\"
                       \"${HARPE_UNIT_OUT}\" @ONLY)")
    install(FILES ${HARPE_UNIT_OUT} DESTINATION lib/systemd/system)
    install(PROGRAMS packaging/make-token.sh DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/harpe)
    install(FILES packaging/serve.conf.example DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/harpe)

    # The node agent.
    set(HARPE_AGENT_UNIT_OUT ${PROJECT_BINARY_DIR}/packaging/harpe-agent.service)
    install(CODE "
        set(HARPE_AGENT_PROGRAM
            \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBEXECDIR}/harpe/harpe-agent\")
        configure_file(\"${PROJECT_SOURCE_DIR}/packaging/harpe-agent.service.in\"
                       \"${HARPE_AGENT_UNIT_OUT}\" @ONLY)")
    install(FILES ${HARPE_AGENT_UNIT_OUT} DESTINATION lib/systemd/system)
    install(FILES packaging/agent.conf.example DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/harpe)
    install(DIRECTORY packaging/slurm packaging/kubernetes packaging/helm packaging/container
            DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/harpe USE_SOURCE_PERMISSIONS)
endif()

# ---- Shell completions, Grafana and Prometheus ---------------------------------------------

# A script makes the completions out of the program's help.
find_program(HARPE_PYTHON3 python3)
if(HARPE_PYTHON3)
    set(HARPE_COMPLETIONS ${PROJECT_BINARY_DIR}/completion)
    add_custom_command(OUTPUT ${HARPE_COMPLETIONS}/harpe.bash ${HARPE_COMPLETIONS}/harpe.zsh
                              ${HARPE_COMPLETIONS}/harpe.fish
        COMMAND ${HARPE_PYTHON3} ${PROJECT_SOURCE_DIR}/packaging/make_completions.py
                $<TARGET_FILE:harpe> ${HARPE_COMPLETIONS}
        DEPENDS harpe ${PROJECT_SOURCE_DIR}/packaging/make_completions.py VERBATIM)
    add_custom_target(harpe_completions ALL DEPENDS ${HARPE_COMPLETIONS}/harpe.bash)
    foreach(place IN ITEMS bash:bash-completion/completions/harpe zsh:zsh/site-functions/_harpe
                           fish:fish/vendor_completions.d/harpe.fish)
        string(REGEX MATCH "^([a-z]+):(.*)/(.*)$" _ ${place})
        install(FILES ${HARPE_COMPLETIONS}/harpe.${CMAKE_MATCH_1} RENAME ${CMAKE_MATCH_3}
                DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/${CMAKE_MATCH_2})
    endforeach()
else()
    message(STATUS "There is no python3, so the completions of shells are not built")
endif()
install(FILES packaging/grafana/harpe.json packaging/grafana/harpe-fleet.json
              packaging/grafana/harpe-agent.json
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/harpe/grafana)
install(FILES packaging/prometheus/harpe-agent.rules.yml packaging/prometheus/harpe-agent.scrape.yml
              packaging/prometheus/harpe-serve.rules.yml packaging/prometheus/harpe-serve.scrape.yml
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/harpe/prometheus)

# ---- Documentation -------------------------------------------------------------------------

file(GLOB HARPE_DOCUMENTS CONFIGURE_DEPENDS LICENSE README.md CHANGELOG.md docs/*.md)
install(FILES ${HARPE_DOCUMENTS} DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/harpe)
# docs/man/<name>.<section>.scd becomes <name>.<section>.
find_program(HARPE_SCDOC scdoc)
file(GLOB HARPE_MAN_SOURCES CONFIGURE_DEPENDS docs/man/*.scd)
# The documents contain links to the sources, which are readable too.
install(FILES ${HARPE_MAN_SOURCES} DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/harpe/man)
if(HARPE_SCDOC AND HARPE_MAN_SOURCES)
    set(HARPE_MAN_PAGES)
    foreach(source IN LISTS HARPE_MAN_SOURCES)
        cmake_path(GET source STEM LAST_ONLY page)
        string(REGEX REPLACE ".*\\." "" section ${page})
        set(output ${PROJECT_BINARY_DIR}/man/${page})
        add_custom_command(OUTPUT ${output} DEPENDS ${source} VERBATIM
            COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/man
            COMMAND sh -c "\"$1\" <\"$2\" >\"$3.new\" && mv \"$3.new\" \"$3\"" sh
                    ${HARPE_SCDOC} ${source} ${output}
            COMMENT "Making man page ${page}")
        list(APPEND HARPE_MAN_PAGES ${output})
        install(FILES ${output} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
    endforeach()
    add_custom_target(harpe_man ALL DEPENDS ${HARPE_MAN_PAGES})
endif()
