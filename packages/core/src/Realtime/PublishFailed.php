<?php

/** An event that was not published. */

declare(strict_types=1);

namespace Hearth\Realtime;

final class PublishFailed extends \RuntimeException
{
}
