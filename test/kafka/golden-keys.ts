/**
 * A thousand keys to compare partitioners by: empty, short and long ones, ids, numbers, words of many scripts, any bytes.
 */
import { randomInt, seededRandom } from '../../src/core/service/random.ts'

export interface GoldenKey {
  readonly key: Uint8Array
  readonly partitions: number
}

const alphabets = ['abcdefghijklmnopqrstuvwxyz', '0123456789', 'äöüßéèçñ', 'абвгдежзик', '日本語の鍵です', '🔑🐘🚀🌍✨']
const partitionCounts = [1, 2, 3, 6, 12, 32, 50, 100, 997]

/** The same keys each time. */
export function goldenKeys(): readonly GoldenKey[] {
  const random = seededRandom('golden keys')
  const text = (length: number): string => {
    const letters = Array.from(alphabets[randomInt(random, 0, alphabets.length - 1)] as string)
    return Array.from({ length }, () => letters[randomInt(random, 0, letters.length - 1)]).join('')
  }
  const bytes = (length: number): Uint8Array => random.fill(new Uint8Array(length))
  const keys = [
    new Uint8Array(0),
    ...Array.from({ length: 40 }, (_, length) => bytes(length + 1)),
    ...Array.from({ length: 400 }, () => Buffer.from(text(randomInt(random, 1, 40)))),
    ...Array.from({ length: 400 }, () => bytes(randomInt(random, 1, 64))),
    ...Array.from({ length: 150 }, (_, i) => Buffer.from(`order-${i}`)),
    ...Array.from({ length: 9 }, (_, i) => Buffer.from(text(500 + i * 97))),
  ]
  return keys.map((key, i) => ({ key, partitions: partitionCounts[i % partitionCounts.length] as number }))
}
