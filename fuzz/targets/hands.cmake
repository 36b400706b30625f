tap_fuzz(arrays LIBRARIES tap_weights)
tap_fuzz(mano LIBRARIES tap_models)
tap_fuzz(checkpoint LIBRARIES tap_models)
