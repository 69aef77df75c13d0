/** A worker that is never ready. */

import { serve } from '../../index.js';

serve({ setUp: () => new Promise((resolve) => setTimeout(resolve, 2 ** 30)), tasks: { echo: (input) => input } });
