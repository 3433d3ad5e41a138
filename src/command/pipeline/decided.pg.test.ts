import { expect, test } from 'vitest'
import { z } from 'zod'
import { commandSetup } from '../../../test/command/command-setup.ts'
import { command, type Planned } from '../model/command.ts'
import { versionConflict } from '../model/rejection.ts'

const { commandsWith, newRequest } = await commandSetup()
const run = async (name: string, plan: () => unknown, change: (plan: never) => unknown, attempts = 3): Promise<unknown> => {
  const seen: unknown[] = []
  const vain = command(name, {
    input: z.unknown(),
    plan,
    execute: async (_tx, planned, { attempt }) => {
      seen.push(change(planned as never))
      if (attempt < attempts) throw versionConflict('the row')
      return {}
    },
  })
  const outcome = await commandsWith().run(vain, { principal: 'ann', requestId: newRequest(), input: 1 })
  expect(outcome).toMatchObject({ status: 'executed', attempts })
  return seen
}

const form = (): FormData => {
  const data = new FormData()
  data.append('a', '1')
  return data
}

test.each<[string, () => unknown, (value: never) => unknown, unknown]>([
  ['Map', () => new Map([['a', 1]]), (map: Map<string, number>) => map.set(`b${map.size}`, 2).size, 2],
  ['Set', () => new Set([1]), (set: Set<number>) => set.add(set.size + 1).size, 2],
  ['Date', () => new Date(0), (date: Date) => date.setTime(date.getTime() + 1), 1],
  ['Uint8Array', () => new Uint8Array([0]), (bytes: Uint8Array) => (bytes[0] = (bytes[0] ?? 0) + 1), 1],
  ['Buffer', () => Buffer.from([0]), (bytes: Buffer) => bytes.writeUInt8(bytes.readUInt8(0) + 1, 0) + bytes.readUInt8(0), 2],
  [
    'ArrayBuffer',
    () => new ArrayBuffer(1),
    (buffer: ArrayBuffer) =>
      new DataView(buffer).setUint8(0, new DataView(buffer).getUint8(0) + 1) ?? new DataView(buffer).getUint8(0),
    1,
  ],
  [
    'DataView',
    () => new DataView(new ArrayBuffer(2), 1),
    (view: DataView) => view.setUint8(0, view.getUint8(0) + 1) ?? view.getUint8(0),
    1,
  ],
  ['URL', () => new URL('http://a/'), (url: URL) => (url.pathname += 'x'), '/x'],
  ['URLSearchParams', () => new URLSearchParams('a=1'), (query: URLSearchParams) => query.append('b', '2') ?? query.size, 2],
  ['FormData', form, (data: FormData) => data.append('b', '2') ?? [...data].length, 2],
  ['RegExp', () => /a/g, (pattern: RegExp) => pattern.exec('aaa')?.index, 0],
])('what an attempt does to a %s of the plan the next one does not see, at any depth', async (name, make, change, expected) => {
  expect(await run(`On${name}`, make, change)).toEqual([expected, expected, expected])
  const nested = (): unknown => ({ list: [new Map([['it', make()]])] })
  const inside = ({ list }: { list: Map<string, never>[] }): unknown => change(list[0]?.get('it') as never)
  expect(await run(`In${name}`, nested, inside as never)).toEqual([expected, expected, expected])
})

test('what is plain beside a Date is frozen all the same, and the handles of children stay what they are', async () => {
  const child = command('Child', {
    input: z.object({ at: z.date() }),
    execute: async (_tx, { at }, { input }) => {
      expect(input.at).toBe(at)
      return at.setTime(at.getTime() + 1)
    },
  })
  const parent = command('Parent', {
    input: z.object({ at: z.date() }),
    plan: async (input, context) => ({
      list: [1],
      at: input.at,
      child: await context.child(child, input, { metadata: input.at }),
    }),
    execute: async (_tx, plan: { list: number[]; at: Date; child: Planned<number> }, { run: runChild, attempt }) => {
      expect(() => plan.list.push(2)).toThrow(TypeError)
      const answer = await runChild(plan.child)
      if (attempt < 3) throw versionConflict('the row')
      return answer
    },
  })
  const outcome = await commandsWith().run(parent, { principal: 'ann', requestId: newRequest(), input: { at: new Date(0) } })
  expect(outcome).toMatchObject({ status: 'executed', response: 1, attempts: 3 })
})

class Money {
  amount: number
  constructor(amount: number) {
    this.amount = amount
  }
  toJSON(): string {
    return `${this.amount} EUR`
  }
}

test('an instance with toJSON is handed on as it is, and one that an attempt has changed is found out before the next', async () => {
  expect(
    await run(
      'Kept',
      () => ({ price: new Money(1) }),
      ({ price }: { price: Money }) => [price instanceof Money, price.amount],
    ),
  ).toEqual(Array.from({ length: 3 }, () => [true, 1]))
  const changing = run(
    'Changed',
    () => ({ price: new Money(1) }),
    ({ price }: { price: Money }) => (price.amount += 1),
  )
  await expect(changing).rejects.toMatchObject({
    code: 'INVALID_OPTION',
    message: expect.stringContaining('Changed: plan.price'),
  })
})

test('an instance that shows nothing of itself is refused in a plan, and handed on in an input', async () => {
  class Cart {
    readonly lines = [1]
  }
  await expect(
    run(
      'Shown',
      () => ({ cart: new Cart() }),
      () => 1,
    ),
  ).rejects.toMatchObject({
    code: 'INVALID_OPTION',
    message: expect.stringContaining('Shown: plan.cart is an instance of Cart'),
  })
  const upload = command('Upload', {
    input: z.instanceof(Blob),
    fingerprint: (blob) => blob.size,
    execute: async (_tx, blob) => await blob.text(),
  })
  const outcome = await commandsWith().run(upload, { principal: 'ann', requestId: newRequest(), input: new Blob(['one']) })
  expect(outcome).toMatchObject({ status: 'executed', response: 'one' })
})
