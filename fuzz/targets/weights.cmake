tap_fuzz(safetensors LIBRARIES tap_weights)
tap_fuzz(pytorch LIBRARIES tap_weights)
tap_fuzz(npy LIBRARIES tap_weights)
tap_fuzz(config LIBRARIES tap_weights)
