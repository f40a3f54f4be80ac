from .calibrate import calibrate as calibrate
from .gpu import calibrate_gpu as calibrate_gpu
from .gpu import fitted_numbers as fitted_numbers
