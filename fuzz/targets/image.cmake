tap_fuzz(image LIBRARIES tap_image)
tap_fuzz(exif LIBRARIES tap_image)
