/**
 * Making and changing elements without markup in strings: what comes from the server is text and never becomes anything else.
 */

/** @param {string} id */
export function byId(id) {
  const found = document.getElementById(id)
  if (found === null) throw new Error(`The page has no #${id}.`)
  return found
}

/**
 * @param {string} tag
 * @param {{ class?: string, text?: string }} [given]
 * @param {...Node} children
 */
export function element(tag, given = {}, ...children) {
  const made = document.createElement(tag)
  if (given.class !== undefined) made.className = given.class
  if (given.text !== undefined) made.textContent = given.text
  made.append(...children)
  return made
}

/**
 * Changes a text only if it is another one, so that nothing is announced or laid out for nothing.
 *
 * @param {Element} target
 * @param {string} text
 */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text
}

const whole = new Intl.NumberFormat('en')

/** @param {number} value */
export function count(value) {
  return whole.format(value)
}

/** @param {number | null | undefined} ms */
export function duration(ms) {
  if (ms === null || ms === undefined) return '–'
  if (ms < 10) return `${ms.toFixed(1)} ms`
  if (ms < 1_000) return `${Math.round(ms)} ms`
  return `${(ms / 1_000).toFixed(1)} s`
}
