if(TARGET tap_server)
  # The options' defaults are the library's.
  tap_fuzz(request LIBRARIES tap_server tap_api)
  tap_fuzz(query LIBRARIES tap_server tap_api)
  tap_fuzz(multipart LIBRARIES tap_server tap_api)
endif()
