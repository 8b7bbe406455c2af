<?php

/*
 * Finds and reverts changes that warm-up requests make in an application's objects and classes.
 *
 * Promises
 * - Objects that were reachable at remember() get their properties back: the application's own objects always, a package's only
 *   if a newer object of the application would stay reachable through it.
 * - Static properties of the application's classes and static variables in its functions get their previous values. Those of code
 *   that was loaded later get their declared values.
 * - It never runs while requests are served: it walks whole object graphs, which takes milliseconds.
 *
 * It cannot see static variables in closures, nor internal state of extensions' objects.
 */

declare(strict_types=1);

namespace Hearth\Worker;

/** @internal */
final class ApplicationState
{
    /** Classes with a connection, which workers cannot use: they are forks of the process that opened it. */
    private const CONNECTIONS = [
        'AMQPConnection', 'Couchbase\Cluster', 'CurlHandle', 'CurlMultiHandle', 'FTP\Connection', 'IMAP\Connection', 'LDAP\Connection',
        'Memcache', 'Memcached', 'MongoDB\Driver\Manager', 'mysqli', 'PDO', 'PgSql\Connection', 'RdKafka', 'Redis', 'RedisArray',
        'RedisCluster', 'RedisSentinel', 'Relay\Relay', 'Socket', 'SQLite3',
    ];

    /** @var array<int, array{object, array<string, mixed>}> by object id: the object and its properties at remember() */
    private array $remembered = [];
    /** @var array<class-string, array<string, mixed>> */
    private array $statics = [];
    /** @var array<class-string, bool> */
    private array $classes = [];
    private readonly string $folder;
    /** @var list<string> folders in it without the application's own code */
    private readonly array $foreign;

    /**
     * @param list<string> $generated folders of the application with generated code
     * @param list<object> $borders objects that refer to everything; the search stops at them
     */
    public function __construct(string $folder, array $generated, private readonly array $borders)
    {
        $this->folder = self::real($folder);
        $loader = new \ReflectionClass(\Composer\Autoload\ClassLoader::class);
        $generated[] = dirname((string) $loader->getFileName(), 2);
        $this->foreign = array_map(self::real(...), $generated);
    }

    /** @param array<mixed> $roots */
    public function remember(array $roots): void
    {
        foreach ($this->applicationClasses() as $class) {
            $this->statics[$class->name] = self::staticProperties($class);
        }
        hearth_remember_statics($this->folder . '/', array_map(static fn (string $folder): string => $folder . '/', $this->foreign));
        foreach ($this->graph([$roots, $this->statics])[0] as $id => $object) {
            $this->remembered[$id] = [$object, self::properties($object)];
        }
    }

    /**
     * Restores the state at remember().
     *
     * @param array<mixed> $roots
     * @return array<int, true> ids of objects to remove: a newer object of the application, or an open connection, is reachable
     *     through them
     */
    public function putBack(array $roots): array
    {
        foreach ($this->applicationClasses() as $class) {
            $this->putBackStatics($class);
        }
        hearth_put_back_statics();
        foreach ($this->remembered as [$object, $properties]) {
            if ($this->isOfApplication($object)) {
                self::putBackProperties($object, $properties);
            }
        }
        // Restored properties make other objects unreachable, so the rest is searched again.
        $tainted = $this->tainted($roots);
        foreach (array_intersect_key($this->remembered, $tainted) as [$object, $properties]) {
            self::putBackProperties($object, $properties);
        }
        return array_diff_key($this->tainted($roots), $this->remembered);
    }

    /** @return array<string, mixed> with PHP's mangled names, private properties of parents included */
    public static function properties(object $object): array
    {
        // References are dereferenced, so that later changes through them do not change the saved values.
        return array_map(static fn (mixed $value): mixed => $value, get_mangled_object_vars($object));
    }

    /** @param array<string, mixed> $properties as properties() gave them */
    public static function putBackProperties(object $object, array $properties): void
    {
        $now = get_mangled_object_vars($object);
        foreach ($properties as $name => $value) {
            if (!array_key_exists($name, $now) || $now[$name] !== $value) {
                self::write($object, $name, true, $value);
            }
        }
        foreach (array_diff_key($now, $properties) as $name => $_) {
            self::write($object, $name, false, null);
        }
    }

    private static function write(object $object, int|string $mangled, bool $set, mixed $value): void
    {
        $parts = explode("\0", (string) $mangled);
        $name = end($parts);
        $scope = count($parts) === 3 && $parts[1] !== '*' ? $parts[1] : $object::class;
        if ((new \ReflectionClass($scope))->isInternal()) {
            return;
        }
        try {
            (function () use ($name, $set, $value): void {
                if ($set) {
                    $this->{$name} = $value;
                } else {
                    unset($this->{$name});
                }
            })->bindTo($object, $scope)();
        } catch (\Error) {
            // Read-only, and initialised since.
        }
    }

    /**
     * Returns objects from which a newer object of the application, or a connection, can be reached.
     *
     * @param array<mixed> $roots
     * @return array<int, true> by object id
     */
    private function tainted(array $roots): array
    {
        [$objects, $holders, $tainted] = $this->graph([$roots]);
        foreach ($objects as $id => $object) {
            if ($this->isConnection($object) || (!isset($this->remembered[$id]) && $this->isOfApplication($object))) {
                $tainted[$id] = true;
            }
        }
        $queue = array_keys($tainted);
        while ($queue !== []) {
            foreach ($holders[array_pop($queue)] ?? [] as $holder) {
                if (!isset($tainted[$holder])) {
                    $tainted[$holder] = true;
                    $queue[] = $holder;
                }
            }
        }
        return $tainted;
    }

    /**
     * Returns all reachable objects, for each the ids of the objects that refer to it, and the ids of those with an open socket.
     *
     * @param array<mixed> $roots
     * @return array{array<int, object>, array<int, list<int>>, array<int, true>}
     */
    private function graph(array $roots): array
    {
        $objects = [];
        $holders = [];
        $sockets = [];
        $borders = array_flip(array_map(spl_object_id(...), [$this, ...$this->borders]));
        [$queue] = self::inside($roots);
        while ($queue !== []) {
            $object = array_pop($queue);
            $id = spl_object_id($object);
            if (isset($objects[$id]) || isset($borders[$id]) || $object instanceof \UnitEnum) {
                continue;
            }
            $objects[$id] = $object;
            [$held, $socket] = self::inside(self::valuesOf($object));
            if ($socket) {
                $sockets[$id] = true;
            }
            foreach ($held as $other) {
                $holders[spl_object_id($other)][] = $id;
                $queue[] = $other;
            }
        }
        return [$objects, $holders, $sockets];
    }

    /** @return array<mixed> */
    private static function valuesOf(object $object): array
    {
        if (PHP_VERSION_ID >= 80400 && (new \ReflectionClass($object))->isUninitializedLazyObject($object)) {
            return [];
        }
        $values = [get_mangled_object_vars($object)];
        if ($object instanceof \Closure) {
            $function = new \ReflectionFunction($object);
            $values[] = [$function->getClosureThis(), $function->getStaticVariables()];
        } elseif ($object instanceof \SplObjectStorage) {
            foreach (clone $object as $held) {
                $values[] = [$held, $object[$held]];
            }
        } elseif ($object instanceof \ArrayObject || $object instanceof \ArrayIterator) {
            $values[] = $object->getArrayCopy();
        } elseif ($object instanceof \SplFixedArray) {
            $values[] = $object->toArray();
        } elseif ($object instanceof \SplDoublyLinkedList || $object instanceof \SplHeap || $object instanceof \SplPriorityQueue) {
            $values[] = iterator_to_array(clone $object, false);
        }
        return $values;
    }

    /**
     * @param array<mixed> $values
     * @return array{list<object>, bool} the objects in them and in nested arrays, and whether there is an open socket
     */
    private static function inside(array $values): array
    {
        $objects = [];
        $socket = false;
        // An array may contain itself by reference, so the depth is limited.
        for ($depth = 0; $values !== [] && $depth < 32; $depth++) {
            $next = [];
            foreach ($values as $value) {
                if (is_object($value)) {
                    $objects[] = $value;
                } elseif (is_array($value)) {
                    foreach ($value as $inner) {
                        if (is_object($inner)) {
                            $objects[] = $inner;
                        } elseif (is_array($inner) || is_resource($inner)) {
                            $next[] = $inner;
                        }
                    }
                } elseif (is_resource($value) && get_resource_type($value) === 'stream') {
                    $socket = $socket || str_contains(stream_get_meta_data($value)['stream_type'], '_socket');
                }
            }
            $values = $next;
        }
        return [$objects, $socket];
    }

    private function isConnection(object $object): bool
    {
        foreach (self::CONNECTIONS as $class) {
            if ($object instanceof $class) {
                return true;
            }
        }
        return false;
    }

    private function isOfApplication(object $object): bool
    {
        if ($object instanceof \Closure) {
            return $this->isOwnFile((new \ReflectionFunction($object))->getFileName());
        }
        return $this->isOwnClass(new \ReflectionClass($object));
    }

    private function isOwnClass(\ReflectionClass $class): bool
    {
        $own = $this->classes[$class->name] ?? null;
        if ($own === null) {
            $parent = $class->getParentClass();
            $own = $this->isOwnFile($class->getFileName()) || ($parent !== false && $this->isOwnClass($parent));
            $this->classes[$class->name] = $own;
        }
        return $own;
    }

    private function isOwnFile(string|false $file): bool
    {
        if ($file === false || !str_starts_with($file, $this->folder . '/')) {
            return false;
        }
        foreach ($this->foreign as $folder) {
            if (str_starts_with($file, $folder . '/')) {
                return false;
            }
        }
        return true;
    }

    /** @return \Generator<\ReflectionClass> */
    private function applicationClasses(): \Generator
    {
        foreach (get_declared_classes() as $name) {
            $class = new \ReflectionClass($name);
            if ($class->isUserDefined() && $this->isOwnClass($class)) {
                yield $class;
            }
        }
    }

    /** @return array<string, mixed> */
    private static function staticProperties(\ReflectionClass $class): array
    {
        $values = [];
        foreach ($class->getProperties(\ReflectionProperty::IS_STATIC) as $property) {
            if ($property->class === $class->name && $property->isInitialized()) {
                $values[$property->name] = $property->getValue();
            }
        }
        return $values;
    }

    private function putBackStatics(\ReflectionClass $class): void
    {
        $before = $this->statics[$class->name] ?? null;
        foreach ($class->getProperties(\ReflectionProperty::IS_STATIC) as $property) {
            if ($property->class !== $class->name) {
                continue;
            }
            if ($before !== null && array_key_exists($property->name, $before)) {
                $property->setValue(null, $before[$property->name]);
            } elseif ($property->hasDefaultValue()) {
                $property->setValue(null, $property->getDefaultValue());
            }
            // A typed property cannot be made uninitialised again.
        }
    }

    private static function real(string $folder): string
    {
        $real = realpath($folder);
        return $real === false ? $folder : $real;
    }
}
