/**
 * Text in other charsets than UTF-8, read as they are registered. `TextDecoder` has the charsets of the web, where a name may mean another
 * one, such as windows-1252 for `iso-8859-1`, or more than is registered, as nearly all that have several bytes for a character. Of those,
 * nothing is read. By its version, Node has other mistakes in some of them.
 */

/** Those of the web that are as registered, by the names that `TextDecoder` has for them. */
const AS_REGISTERED = new Set([
  'iso-8859-2', 'iso-8859-3', 'iso-8859-4', 'iso-8859-5', 'iso-8859-6', 'iso-8859-7', 'iso-8859-8', 'iso-8859-10', 'iso-8859-13',
  'iso-8859-14', 'iso-8859-15', 'koi8-r', 'macintosh',
]);
/** Those of the web that have controls in the place of bytes that mean nothing. */
const WINDOWS = /^windows-125[0-8]$/;
/** What windows-1252 has from 0x80 to 0x9f, where Latin-1 has controls. Node has either, by its version. */
const WINDOWS_1252 = '€\x81‚ƒ„…†‡ˆ‰Š‹Œ\x8dŽ\x8f\x90‘’“”•–—˜™š›œ\x9džŸ';
/** Names that Python and many others have, and the web has not. */
const ALIASES = new Map([['latin-1', 'latin1']]);
const ASCII = new Set(['us-ascii', 'ascii', 'ansi_x3.4-1968']);
const CONTROLS = /[\x80-\x9f]/;

/** Whether a text that has only ASCII is the same bytes in UTF-8. @param {string} charset in small letters */
export const isAscii = (charset) => ASCII.has(charset);

/**
 * The text. Throws a TypeError if it is none in this charset, or if the charset is not read here.
 * @param {Buffer} bytes @param {string} charset in small letters
 */
export function decodeAs(bytes, charset) {
  const decode = decoderOf(charset);
  if (decode === undefined) throw new TypeError(`it is in the charset ${charset}, which is not read here`);
  let text;
  try {
    text = decode(bytes);
  } catch {
    // it is said below
  }
  if (text === undefined) throw new TypeError(`it is no text in ${charset}`);
  return text;
}

/** What gives a text, or undefined, or throws. @param {string} charset @returns {((bytes: Buffer) => string | undefined) | undefined} */
function decoderOf(charset) {
  if (isAscii(charset)) return decodeAscii;
  if (charset === 'utf-16') return decodeUtf16;
  let decoder;
  try {
    decoder = new TextDecoder(ALIASES.get(charset) ?? charset, { fatal: true, ignoreBOM: true });
  } catch {
    return undefined;
  }
  const { encoding } = decoder;
  if (encoding === 'windows-1252') return charset.includes('1252') ? decodeWindows1252 : (bytes) => bytes.toString('latin1');
  if (encoding === 'windows-1254' && !charset.includes('1254')) return (bytes) => decodeLatin5(bytes, decoder);
  if (encoding === 'windows-1253') return (bytes) => decodeWindows1253(bytes, decoder);
  if (WINDOWS.test(encoding)) return (bytes) => withoutControls(decoder.decode(bytes));
  const isSame = AS_REGISTERED.has(encoding) || (/^utf-16[bl]e$/.test(charset) && encoding === charset);
  return isSame ? (bytes) => decoder.decode(bytes) : undefined;
}

/** @param {Buffer} bytes */
const decodeAscii = (bytes) => (bytes.every((byte) => byte < 0x80) ? bytes.toString('latin1') : undefined);

/** The mark at the beginning says the order of the bytes, and is no part of the text. Without it, readers disagree. @param {Buffer} bytes */
function decodeUtf16(bytes) {
  if (bytes.length === 0) return '';
  const mark = bytes.toString('hex', 0, 2);
  const order = mark === 'feff' ? 'utf-16be' : mark === 'fffe' ? 'utf-16le' : undefined;
  return order && new TextDecoder(order, { fatal: true, ignoreBOM: true }).decode(bytes.subarray(2));
}

/** @param {Buffer} bytes */
const decodeWindows1252 = (bytes) =>
  withoutControls(bytes.toString('latin1').replace(/[\x80-\x9f]/g, (control) => WINDOWS_1252[control.charCodeAt(0) - 0x80]));

/** Node has a letter for 0xaa, which means nothing. @param {Buffer} bytes @param {{ decode(bytes: Uint8Array): string }} windows */
const decodeWindows1253 = (bytes, windows) => (bytes.includes(0xaa) ? undefined : withoutControls(windows.decode(bytes)));

/** ISO-8859-9 is windows-1254 with controls from 0x80 to 0x9f. @param {Buffer} bytes @param {{ decode(bytes: Uint8Array): string }} windows */
const decodeLatin5 = (bytes, windows) =>
  bytes.toString('latin1').replace(/[\xa0-\xff]+/g, (high) => windows.decode(Buffer.from(high, 'latin1')));

/** @param {string} text */
const withoutControls = (text) => (CONTROLS.test(text) ? undefined : text);
