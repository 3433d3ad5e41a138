/**
 * Strings that a page must show as they are.
 */

/** What would set `pwned` if it became anything but text. */
export const corpus = [
  `<img src=x onerror="globalThis.pwned='img'">`,
  `"><script>globalThis.pwned='script'</script>`,
  `javascript:globalThis.pwned='url'`,
  '${globalThis.pwned="template"}',
  `{{constructor.constructor('globalThis.pwned="braces"')()}}`,
  `<svg onload="globalThis.pwned='svg'">`,
  `</pre><script>globalThis.pwned='pre'</script>`,
  `</title></style></textarea><iframe srcdoc="<script>parent.pwned='frame'</script>">`,
  `' autofocus onfocus='globalThis.pwned="focus"`,
  `<details open ontoggle="globalThis.pwned='toggle'">`,
  `\u202Egpj.exe<b onmouseover="globalThis.pwned='bidi'">`,
  `&lt;img src=x onerror=globalThis.pwned='entity'&gt;`,
  `../?service=x&id=%3Cimg%20src%3Dx%3E#/trace/x`,
  `__proto__`,
] as const
