/**
 * What tells one request from another that came under the same id: a hash of the command's name and its input.
 *
 * The input is written in its canonical form first, so that the order of keys does not matter and nothing else is overlooked. An
 * input that has none is refused: two of them would pass for one request, and the second would be lost.
 */
import { createHash } from 'node:crypto'
import { canonicalText } from '../../core/encoding/canonical.ts'

const remedy = 'Pass plain data, or give the command a fingerprint: what of its input makes it the same request.'

/** 32 hexadecimal digits. */
export function fingerprint(command: string, input: unknown): string {
  return createHash('sha256')
    .update(`${command}\n${canonicalText(input, { what: 'input', remedy })}`)
    .digest('hex')
    .slice(0, 32)
}
