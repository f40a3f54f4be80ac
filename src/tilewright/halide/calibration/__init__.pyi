from .calibrate import calibrate as calibrate
