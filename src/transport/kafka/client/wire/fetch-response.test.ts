import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { parseFetchResponse } from './fetch-response.ts'

/** An answer for one partition of one topic, with an aborted transaction and three bytes of batches. */
function answer(): Buffer {
  const [none, one, noTags] = [[1], [2], [0]]
  const aborted = [...one, ...zeros(7), 7, ...zeros(7), 9, ...noTags]
  const partition = [0, 0, 0, 5, 0, 0, ...zeros(24), ...aborted, ...zeros(4), 4, 1, 2, 3, ...noTags]
  return Buffer.from([...zeros(10), ...one, ...one, 116, ...one, ...partition, ...noTags, ...none])
}

function zeros(count: number): readonly number[] {
  return Array.from({ length: count }, () => 0)
}

test('an answer is read whole, and one that is cut off anywhere is damaged', () => {
  const whole = answer()
  const batches = Buffer.from([1, 2, 3])
  const aborted = [{ producerId: 7n, firstOffset: 9n }]
  const read = { errorCode: 0, partitions: [{ partition: 5, errorCode: 0, aborted, batches }] }
  expect(parseFetchResponse(whole)).toEqual(read)
  // The last byte is of the tags of the answer, which nobody reads.
  for (let length = 0; length < whole.length - 1; length += 1) {
    const parse = (): unknown => parseFetchResponse(whole.subarray(0, length))
    // Ended from outside where it would go on for ever: no time-out of a test gets a turn before it.
    expect(() => runInNewContext('parse()', { parse }, { timeout: 60_000 })).toThrow('what Kafka sent is damaged')
  }
})
