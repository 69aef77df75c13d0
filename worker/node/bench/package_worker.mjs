/** The same with the package. */

import { serve } from '../index.js';

serve({ tasks: { echo: { run: (input) => input, idempotent: true } } });
