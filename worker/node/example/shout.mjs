/** What `http.mjs` cannot do itself. To abort is what a bug in native code, such as a parser of pictures, comes to. */

import { serve } from '../index.js';

serve({
  tasks: {
    shout: {
      accepts: 'text/plain',
      produces: 'text/plain; charset=utf-8',
      description: 'makes letters large; some inputs crash it',
      example: 'hello',
      run(text) {
        if (text === 'crash') process.abort();
        if (text === 'hang') for (;;);
        if (text === '') throw new Error('nothing to shout');
        return text.toUpperCase();
      },
    },
  },
});
