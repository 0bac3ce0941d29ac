# What the wheel carries beside python/headrace: the executable, the client library, and a script that runs the executable.
#
# The executable lies in the package, not among the scripts: auditwheel sets its path to the bundled libraries relative
# to itself, and the Python package finds it without looking at PATH.
if(TARGET headrace AND TARGET headrace_client)
  set_target_properties(headrace headrace_client PROPERTIES BUILD_RPATH_USE_ORIGIN ON SKIP_BUILD_RPATH ON)
  add_custom_target(headrace_wheel DEPENDS headrace headrace_client)
  if(SKBUILD)
    install(TARGETS headrace RUNTIME DESTINATION headrace/bin COMPONENT wheel)
    install(TARGETS headrace_client LIBRARY DESTINATION headrace COMPONENT wheel)
    install(PROGRAMS cmake/headrace_script.py DESTINATION ${SKBUILD_SCRIPTS_DIR} RENAME headrace COMPONENT wheel)
  endif()
endif()
