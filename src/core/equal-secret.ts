/**
 * Compares what somebody gave with a secret, without telling by its time how much of it is right.
 */
import { timingSafeEqual } from 'node:crypto'

export function isEqualSecret(given: string, secret: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(secret)]
  return a.length === b.length && timingSafeEqual(a, b)
}
